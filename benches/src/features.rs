//! What each feature costs on a GPU: beside the plain call, and beside the product and a
//! sampler apart.

use anyhow::{Context, ensure};
use flash_sampling::Status;

use crate::asked::{Feature, Lists, features};
use crate::bursts::{Burst, cooled};
use crate::ceilings::H200;
use crate::check::small_integers;
use crate::contender::{Call, Outcome};
use crate::costs::{Cost, TEMPERATURE};
use crate::feature_call::FeatureCall;
use crate::gpu::Buffer;
use crate::separate::Separate;
use crate::session::{Data, Session};
use crate::shapes::Shape;
use crate::timing::Summary;

/// Tokens of the problem on which the two are compared: no fewer than lists need, no multiple of
/// a tile, and of 8 for cuBLASLt.
const VOCAB: u32 = 4_040;

/// Its logits have a variance of about 128: so many tokens have nine tenths of the probability
/// that filters cut.
const INTEGERS_TEMPERATURE: f32 = 3.0;

/// Times the plain call and all features in alternation, and each behind it product and sampler
/// apart. Where these cannot run, or are wrong, the costs say why.
///
/// # Errors
/// A call of ours fails, or a row has a token that its rules do not admit.
pub fn costs(
    session: &Session,
    shape: &Shape,
    batch: u32,
    data: &Data,
) -> anyhow::Result<Vec<Cost>> {
    let gpu = &session.gpu;
    let lists = Lists::new(shape.vocab);
    let features = features(&lists, TEMPERATURE);
    let states = data.hidden_states.address();
    let separate = agreements(session, shape, batch).and_then(|agreements| {
        let separate = Separate::new(session, shape, batch, states, TEMPERATURE)?;
        Ok((separate, agreements))
    });
    let call_us = H200.floor_us(shape, batch);
    let checked = |call: &dyn Call, feature: &Feature<'_>| {
        for token in tokens(call, &data.weights[0])? {
            ensure!(token < shape.vocab, "token {token}");
            feature.check(token, Status::OK);
        }
        Burst::of_call(gpu, call, &data.weights, call_us)
    };
    let (mut ours, mut apart, mut bursts) = (Vec::new(), Vec::new(), Vec::new());
    for (i, feature) in features.iter().enumerate() {
        let call = FeatureCall::new(&session.sampler, gpu, shape, batch, states, feature)
            .context(feature.name)?;
        bursts.push(checked(&call, feature).context(feature.name)?);
        ours.push(call);
        let call = match &separate {
            Ok((separate, agreements)) => {
                let agrees = agreements.get(i) == Some(&true);
                let call = || {
                    ensure!(agrees, "draws other tokens from small integers than ours");
                    let call = separate.call(feature)?;
                    Ok((checked(&*call, feature)?, call))
                };
                call().map_err(|error| format!("{}: {error:#}", feature.name))
            }
            Err(error) => Err(format!("{error:#}")),
        };
        apart.push(call.map(|(burst, call)| {
            bursts.push(burst);
            call
        }));
    }
    let mut times = cooled(gpu, &session.meter, &bursts, session.repeats as usize)?.into_iter();
    let mut next = || times.next().map(|times| times.samples).context("every burst has times");
    let mut plain = None;
    let mut costs = Vec::new();
    for ((feature, ours), apart) in features.iter().zip(&ours).zip(&apart) {
        let samples = next()?;
        let plain = plain.get_or_insert_with(|| samples.clone());
        let Summary { p10, median, p90 } = Summary::of(samples.clone()).context("no rounds")?;
        let mut cost = Cost {
            shape: shape.name.into(),
            vocab: shape.vocab,
            hidden: shape.hidden,
            batch,
            feature: feature.name.into(),
            detail: ours.detail(),
            p10_us: p10,
            median_us: median,
            p90_us: p90,
            ratio: ratio(&samples, plain)?,
            separate_detail: String::new(),
            separate_p10_us: None,
            separate_median_us: None,
            separate_p90_us: None,
            ratio_to_separate: None,
        };
        match apart {
            Ok(apart) => {
                let separate = next()?;
                cost.separate_detail = apart.detail();
                cost.ratio_to_separate = Some(ratio(&samples, &separate)?);
                let Summary { p10, median, p90 } = Summary::of(separate).context("no rounds")?;
                (cost.separate_p10_us, cost.separate_p90_us) = (Some(p10), Some(p90));
                cost.separate_median_us = Some(median);
            }
            Err(reason) => cost.separate_detail.clone_from(reason),
        }
        costs.push(cost);
    }
    Ok(costs)
}

/// Median of the ratios of the same round.
fn ratio(samples: &[f64], to: &[f64]) -> anyhow::Result<f64> {
    let ratios = samples.iter().zip(to).map(|(own, other)| own / other).collect();
    Ok(Summary::of(ratios).context("no rounds")?.median)
}

/// Of each feature, whether both ways draw the same tokens from small integers, where every
/// product gives the same logits.
fn agreements(session: &Session, shape: &Shape, batch: u32) -> anyhow::Result<Vec<bool>> {
    let gpu = &session.gpu;
    let (small, weights, states) = small_integers(shape, VOCAB, batch);
    let (weights, states) = (gpu.upload(&weights)?, gpu.upload(&states)?);
    let (weights, states) = (&weights, states.address());
    let separate = Separate::new(session, &small, batch, states, INTEGERS_TEMPERATURE)?;
    let lists = Lists::new(VOCAB);
    let agree = |feature: &Feature<'_>| -> anyhow::Result<bool> {
        let ours = FeatureCall::new(&session.sampler, gpu, &small, batch, states, feature)?;
        let separate = separate.call(feature)?;
        Ok(tokens(&ours, weights)? == tokens(&*separate, weights)?)
    };
    let features = features(&lists, INTEGERS_TEMPERATURE);
    let named = |feature: &Feature<'_>| {
        agree(feature).with_context(|| format!("{}, from small integers", feature.name))
    };
    features.iter().map(named).collect()
}

/// The tokens that a call draws over these weights, which have its shape.
fn tokens(call: &dyn Call, weights: &Buffer) -> anyhow::Result<Vec<u32>> {
    call.poison()?;
    // SAFETY: the weights have the shape, and `outcome` waits for the call.
    unsafe { call.enqueue(weights.address()) }?;
    match call.outcome()? {
        Outcome::Tokens(tokens) => Ok(tokens),
        Outcome::Logits(_) => anyhow::bail!("a call with features draws tokens"),
    }
}
