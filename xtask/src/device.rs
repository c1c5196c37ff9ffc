//! Placeholder until its branch lands.

#[derive(clap::Args)]
pub(crate) struct BundleArgs {}
#[derive(clap::Args)]
pub(crate) struct TestArgs {}
#[derive(clap::Args)]
pub(crate) struct SanitizeArgs {}

pub(crate) fn run_bundle(_: BundleArgs) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
pub(crate) fn run_test(_: TestArgs) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
pub(crate) fn run_sanitize(_: SanitizeArgs) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
