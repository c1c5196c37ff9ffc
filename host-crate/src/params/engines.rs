//! What the parameters of other engines mean here: their defaults, and what they make of
//! values that others refuse.
//!
//! Two habits are not reproduced. Some engines keep all tokens that tie for the last place
//! of top_k; here exactly k survive. mistral.rs drops a token with exactly `min_p` of the
//! likeliest one's probability; here it stays.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::philox::NoiseKey;
use flash_sampling_kernels::transform::Penalties;

use super::{EditOrder, FilterOrder, SamplingParams};
use crate::error::{Error, Param};

/// An engine whose requests are taken as it takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// vLLM: a temperature below 0.01 is raised to it; 0 drops the filters.
    Vllm,
    /// SGLang: filters measured on all tokens; a bias comes after penalties, and the seen
    /// tokens are those generated.
    Sglang,
    /// transformers with `do_sample`: top_k 50 unless told otherwise, no greedy temperature.
    Transformers,
    /// llama.cpp: filters measured before the temperature, and all on by default.
    LlamaCpp,
    /// candle's `LogitsProcessor`: greedy unless told otherwise; top_p out of range is off.
    Candle,
    /// mistral.rs: greedy unless told otherwise; filters out of range are off.
    MistralRs,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Transformers => "transformers",
            Self::LlamaCpp => "llama.cpp",
            Self::Candle => "candle",
            Self::MistralRs => "mistral.rs",
        })
    }
}

/// Parameters as a request to an engine gives them; what it leaves out is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    /// Temperature.
    pub temperature: Option<f32>,
    /// Tokens to keep; most engines have values that mean all.
    pub top_k: Option<i32>,
    /// Probability to keep.
    pub top_p: Option<f32>,
    /// Share of the highest probability to keep.
    pub min_p: Option<f32>,
    /// Standard deviations below the highest logit to keep.
    pub top_n_sigma: Option<f32>,
    /// Least probability to keep.
    pub epsilon_cutoff: Option<f32>,
    /// The same, less where the entropy is high.
    pub eta_cutoff: Option<f32>,
    /// Repetition penalty.
    pub repetition: Option<f32>,
    /// Frequency penalty.
    pub frequency: Option<f32>,
    /// Presence penalty.
    pub presence: Option<f32>,
}

/// Keeps the likeliest token and no other.
const ONE_TOKEN: f32 = f32::MIN_POSITIVE;

impl Engine {
    /// The parameters that the engine would use for `request`. Their domains are checked
    /// with the call, as those of any row.
    ///
    /// # Errors
    /// [`Error::EngineParam`] for what the engine refuses and this crate would not.
    pub fn params(self, request: &Request, key: NoiseKey) -> Result<SamplingParams, Error> {
        self.check(request)?;
        let (temperature, top_k, top_p, min_p) = match self {
            Self::Vllm => (1.0, -1, 1.0, 0.0),
            Self::Sglang => (1.0, -1, 1.0, 0.0),
            Self::Transformers => (1.0, 50, 1.0, 0.0),
            Self::LlamaCpp => (0.8, 40, 0.95, 0.05),
            Self::Candle | Self::MistralRs => (0.0, -1, 1.0, 0.0),
        };
        let temperature = self.temperature(request.temperature.unwrap_or(temperature));
        let mut params = SamplingParams::new(temperature, key.seed, key.position);
        params.top_k = u32::try_from(request.top_k.unwrap_or(top_k)).ok().filter(|&k| k > 0);
        params.top_p = self.top_p(request.top_p.unwrap_or(top_p));
        params.min_p = self.min_p(request.min_p.unwrap_or(min_p));
        // llama.cpp takes what is not above 0 as off, transformers what is out of range.
        params.top_n_sigma = request.top_n_sigma.filter(|&n| n > 0.0 || n.is_nan());
        let cutoff = |p: Option<f32>| p.filter(|&p| p > 0.0 && p < 1.0).unwrap_or(0.0);
        params.epsilon_cutoff = cutoff(request.epsilon_cutoff);
        params.eta_cutoff = cutoff(request.eta_cutoff);
        if self == Self::Vllm && temperature == 0.0 {
            (params.top_k, params.top_p, params.min_p) = (None, 1.0, 0.0);
        }
        params.filter_order = match self {
            Self::Vllm => FilterOrder::Sequential,
            Self::Sglang | Self::Candle => FilterOrder::Joint,
            Self::Transformers | Self::LlamaCpp | Self::MistralRs => FilterOrder::MinPLast,
        };
        params.filters_at_one = self == Self::LlamaCpp;
        params.edit_order = match self {
            Self::Sglang | Self::MistralRs => EditOrder::BiasLast,
            _ => EditOrder::BiasFirst,
        };
        params.penalties = Penalties {
            repetition: request.repetition.unwrap_or(1.0),
            frequency: request.frequency.unwrap_or(0.0),
            presence: request.presence.unwrap_or(0.0),
        };
        Ok(params)
    }

    fn temperature(self, t: f32) -> f32 {
        match self {
            Self::Vllm if t > 0.0 && t < 1e-2 => 1e-2,
            Self::Sglang if (0.0..1e-6).contains(&t) => 0.0,
            Self::LlamaCpp if t <= 0.0 => 0.0,
            Self::Candle | Self::MistralRs if t < 1e-7 => 0.0,
            _ => t,
        }
    }

    fn top_p(self, p: f32) -> f32 {
        match self {
            Self::Transformers if p == 0.0 => ONE_TOKEN,
            Self::LlamaCpp if p <= 0.0 => ONE_TOKEN,
            Self::LlamaCpp if p >= 1.0 => 1.0,
            Self::Candle if p <= 0.0 || p >= 1.0 => 1.0,
            Self::MistralRs if !(p > 0.0 && p < 1.0) => 1.0,
            _ => p,
        }
    }

    fn min_p(self, p: f32) -> f32 {
        match self {
            Self::LlamaCpp if p <= 0.0 => 0.0,
            Self::MistralRs if !(p > 0.0 && p < 1.0) => 0.0,
            _ => p,
        }
    }

    /// Refuses what the engine refuses and this crate would not.
    fn check(self, request: &Request) -> Result<(), Error> {
        let fault = |param, expected, found: f64| {
            Err(Error::EngineParam { engine: self, param, expected, found })
        };
        if let Some(k) = request.top_k {
            let expected = match self {
                Self::Vllm if k < -1 => Some("at least -1"),
                Self::Sglang if k != -1 && k < 1 => Some("-1 or at least 1"),
                Self::Transformers if k < 0 => Some("at least 0"),
                Self::Candle if k < 1 => Some("at least 1"),
                _ => None,
            };
            if let Some(expected) = expected {
                return fault(Param::TopK, expected, f64::from(k));
            }
        }
        if let (Self::Transformers, Some(0.0)) = (self, request.temperature) {
            return fault(Param::Temperature, "above 0", 0.0);
        }
        if let (Self::Sglang, Some(found)) = (self, request.repetition)
            && found > 2.0
        {
            return fault(Param::Repetition, "at most 2", f64::from(found));
        }
        let counting = [(Param::Frequency, request.frequency), (Param::Presence, request.presence)];
        for (param, found) in
            counting.into_iter().filter_map(|(param, found)| Some((param, found?)))
        {
            match self {
                Self::Vllm | Self::Sglang if !(-2.0..=2.0).contains(&found) => {
                    return fault(param, "from -2 to 2", f64::from(found));
                }
                Self::Transformers | Self::Candle => {
                    return fault(param, "none", f64::from(found));
                }
                _ => {}
            }
        }
        for (param, found, known) in [
            (Param::MinP, request.min_p, self != Self::Candle),
            (Param::TopNSigma, request.top_n_sigma, self == Self::LlamaCpp),
            (Param::EpsilonCutoff, request.epsilon_cutoff, self == Self::Transformers),
            (Param::EtaCutoff, request.eta_cutoff, self == Self::Transformers),
        ] {
            if let (Some(found), false) = (found, known) {
                return fault(param, "none", f64::from(found));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: NoiseKey = NoiseKey { seed: 1, position: 2 };

    fn params(engine: Engine, request: Request) -> SamplingParams {
        engine.params(&request, KEY).unwrap()
    }

    fn at(temperature: f32) -> Request {
        Request { temperature: Some(temperature), ..Request::default() }
    }

    fn top_k(k: i32) -> Request {
        Request { top_k: Some(k), ..Request::default() }
    }

    fn top_p(p: f32) -> Request {
        Request { top_p: Some(p), ..Request::default() }
    }

    fn min_p(p: f32) -> Request {
        Request { min_p: Some(p), ..Request::default() }
    }

    fn top_n_sigma(n: f32) -> Request {
        Request { top_n_sigma: Some(n), ..Request::default() }
    }

    #[track_caller]
    fn assert_refused(engine: Engine, request: Request, text: &str) {
        assert_eq!(engine.params(&request, KEY).unwrap_err().to_string(), text);
    }

    #[test]
    fn vllm_raises_small_temperatures_and_drops_filters_at_0() {
        use Engine::Vllm;
        let plain = params(Vllm, Request::default());
        assert_eq!(plain, SamplingParams::new(1.0, 1, 2));
        assert_eq!(params(Vllm, at(1e-6)).temperature, 1e-2);
        let greedy = Request { top_k: Some(5), top_p: Some(0.5), min_p: Some(0.1), ..at(0.0) };
        assert_eq!(params(Vllm, greedy), SamplingParams::new(0.0, 1, 2));
        assert_eq!([-1, 0, 7].map(|k| params(Vllm, top_k(k)).top_k), [None, None, Some(7)]);
        assert_refused(Vllm, top_k(-2), "vllm top_k: expected at least -1, found -2");
        let strong = Request { presence: Some(2.5), ..Request::default() };
        assert_refused(Vllm, strong, "vllm presence: expected from -2 to 2, found 2.5");
    }

    #[test]
    fn sglang_measures_all_filters_on_all_tokens() {
        use Engine::Sglang;
        let plain = params(Sglang, Request::default());
        assert_eq!(plain.filter_order, FilterOrder::Joint);
        assert_eq!(plain.edit_order, EditOrder::BiasLast);
        assert_eq!(params(Sglang, at(1e-7)).temperature, 0.0);
        assert_eq!(params(Sglang, top_k(-1)).top_k, None);
        assert_refused(Sglang, top_k(0), "sglang top_k: expected -1 or at least 1, found 0");
        let strong = Request { repetition: Some(2.5), ..Request::default() };
        assert_refused(Sglang, strong, "sglang repetition: expected at most 2, found 2.5");
    }

    #[test]
    fn transformers_keeps_50_tokens_and_has_no_greedy_temperature() {
        use Engine::Transformers;
        let plain = params(Transformers, Request::default());
        assert_eq!((plain.temperature, plain.top_k), (1.0, Some(50)));
        assert_eq!(plain.filter_order, FilterOrder::MinPLast);
        assert_eq!(params(Transformers, top_k(0)).top_k, None);
        assert_eq!(params(Transformers, top_p(0.0)).top_p, ONE_TOKEN);
        let cutoffs =
            Request { epsilon_cutoff: Some(3e-4), eta_cutoff: Some(1.0), ..Request::default() };
        let cut = params(Transformers, cutoffs);
        assert_eq!((cut.epsilon_cutoff, cut.eta_cutoff), (3e-4, 0.0));
        assert_refused(
            Transformers,
            top_n_sigma(1.0),
            "transformers top_n_sigma: expected none, found 1",
        );
        assert_refused(
            Transformers,
            at(0.0),
            "transformers temperature: expected above 0, found 0",
        );
        let counted = Request { frequency: Some(0.5), ..Request::default() };
        assert_refused(Transformers, counted, "transformers frequency: expected none, found 0.5");
    }

    #[test]
    fn llama_cpp_filters_before_the_temperature() {
        use Engine::LlamaCpp;
        let plain = params(LlamaCpp, Request::default());
        let filters = (plain.top_k, plain.top_p, plain.min_p);
        assert_eq!((plain.temperature, filters), (0.8, (Some(40), 0.95, 0.05)));
        assert!(plain.filters_at_one);
        assert_eq!(plain.filter_order, FilterOrder::MinPLast);
        assert_eq!(params(LlamaCpp, at(-1.0)).temperature, 0.0);
        assert_eq!(params(LlamaCpp, top_k(0)).top_k, None);
        assert_eq!([0.0, 1.5].map(|p| params(LlamaCpp, top_p(p)).top_p), [ONE_TOKEN, 1.0]);
        assert_eq!(params(LlamaCpp, min_p(-0.5)).min_p, 0.0);
        let sigma = [-1.0, 0.0, 1.5].map(|n| params(LlamaCpp, top_n_sigma(n)).top_n_sigma);
        assert_eq!(sigma, [None, None, Some(1.5)]);
        let cut = Request { eta_cutoff: Some(0.5), ..Request::default() };
        assert_refused(LlamaCpp, cut, "llama.cpp eta_cutoff: expected none, found 0.5");
    }

    #[test]
    fn candle_is_greedy_by_default_and_takes_odd_top_p_as_off() {
        use Engine::Candle;
        let plain = params(Candle, Request::default());
        assert_eq!((plain.temperature, plain.filter_order), (0.0, FilterOrder::Joint));
        assert_eq!(params(Candle, at(1e-8)).temperature, 0.0);
        assert!(params(Candle, at(f32::NAN)).temperature.is_nan(), "which the call refuses");
        assert_eq!([0.0, 0.4, 1.5].map(|p| params(Candle, top_p(p)).top_p), [1.0, 0.4, 1.0]);
        assert_refused(Candle, top_k(0), "candle top_k: expected at least 1, found 0");
        assert_refused(Candle, min_p(0.5), "candle min_p: expected none, found 0.5");
    }

    #[test]
    fn mistral_rs_takes_filters_out_of_range_as_off() {
        use Engine::MistralRs;
        let plain = params(MistralRs, Request::default());
        assert_eq!((plain.temperature, plain.edit_order), (0.0, EditOrder::BiasLast));
        assert_eq!(params(MistralRs, top_k(-3)).top_k, None);
        let odd = [f32::NAN, 7.0, 0.0];
        assert_eq!(odd.map(|p| params(MistralRs, top_p(p)).top_p), [1.0; 3]);
        assert_eq!(odd.map(|p| params(MistralRs, min_p(p)).min_p), [0.0; 3]);
        assert_eq!(params(MistralRs, min_p(1.0)).min_p, 0.0);
    }
}
