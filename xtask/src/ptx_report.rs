//! Placeholder until its branch lands.

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
