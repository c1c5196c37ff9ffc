//! One run of the benchmark: the contenders on one card, cell by cell.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use anyhow::Context;
use cudarc::driver::sys;
use flash_sampling::Sampler;
use flash_sampling::cuda::Cuda;

use crate::baseline::Cublas;
use crate::bursts::{Burst, Times, cooled, eager_us, host_us, sustained};
use crate::ceilings::H200;
use crate::check::check;
use crate::contender::{Absent, Call, Contender};
use crate::gpu::{Buffer, Gpu};
use crate::kernels::{CublasSampled, Kernels};
use crate::meter::Meter;
use crate::ours::Ours;
use crate::rates;
use crate::report::{
    CUBLAS, CUBLAS_SAMPLED, OURS, OURS_GREEDY, OURS_PROGRAMMATIC, OURS_WORDS, Protocol, Record,
    without_folders,
};
use crate::shapes::Shape;
use crate::timing::Summary;

/// The committed PTX's manifest.
const MANIFEST: &str = include_str!("../../host-crate/ptx/manifest.toml");

/// Sets of weights that calls take turns over, at least.
const WEIGHTS_MIN: u64 = 3;
/// And of this many times the cache together.
const CACHES: u64 = 4;

/// What a run measures with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ordinal of the device.
    pub device: u32,
    /// Variant in place of the planner's choice.
    pub variant: Option<String>,
    /// Variants beside it.
    pub beside: Vec<String>,
    /// Whether to time calls that start early, too.
    pub programmatic: bool,
    /// The cuBLASLt library, if the loader does not find it.
    pub cublaslt: Option<PathBuf>,
    /// Bursts of each contender in each cell.
    pub repeats: u32,
    /// Whether to run back to back too.
    pub sustained: bool,
}

/// The card, ready, and the contenders.
pub struct Session {
    contenders: Vec<Box<dyn Contender>>,
    pub(crate) kernels: Rc<Kernels>,
    /// cuBLASLt, or why there is none.
    pub(crate) cublas: Result<Rc<Cublas>, String>,
    pub(crate) sampler: Rc<Sampler<Cuda>>,
    pub(crate) gpu: Gpu,
    pub(crate) meter: Meter,
    pub(crate) repeats: u32,
    sustained: bool,
    provenance: Vec<(String, String)>,
}

/// Inputs of a shape's cells.
#[derive(Debug)]
pub struct Data {
    pub(crate) weights: Vec<Buffer>,
    pub(crate) hidden_states: Buffer,
}

impl Session {
    /// Opens the device, gathers the contenders and measures the card's own rates.
    ///
    /// A contender that cannot take part stays, and its rows say why.
    ///
    /// # Errors
    /// The device or our own sampler cannot be used.
    pub fn open(settings: &Settings) -> anyhow::Result<Self> {
        let gpu = Gpu::open(settings.device as usize)?;
        let meter = Meter::open(settings.device);
        let kernels = Rc::new(Kernels::load(&gpu)?);
        let cublas = Cublas::load(settings.cublaslt.as_deref())
            .map(Rc::new)
            .map_err(|error| format!("{error:#}"));
        let mut provenance = provenance(&gpu, &meter)?;
        let mut fact = |name: &str, value: String| provenance.push((name.into(), value));
        let rates = rates::memory_tbps(&gpu, &meter, &kernels)?;
        fact("plain read", format!("{:.3} TB/s", rates.read_tbps));
        fact("copy, read + written", format!("{:.3} TB/s", rates.copy_tbps));
        match &cublas {
            Ok(cublas) => {
                fact("cuBLASLt", cublas.version());
                let rate = rates::product_tflops(&gpu, &meter, cublas)?;
                fact("bf16 product, 8,192³", format!("{rate:.0} TFLOP/s"));
            }
            Err(reason) => fact("cuBLASLt", format!("not run: {reason}")),
        }
        fact("inputs", "bf16 normals; logits have unit variance".into());
        fact(
            "floor",
            format!(
                "the greater of V·D·2 bytes at {} TB/s and 2·V·D·B at {} TFLOP/s",
                H200.read_tbps, H200.product_tflops
            ),
        );
        let sampler = sampler(settings, settings.variant.as_deref())?;
        let contenders = contenders(settings, &sampler, &cublas, &kernels)?;
        let Settings { repeats, sustained, .. } = *settings;
        Ok(Self {
            contenders,
            kernels,
            cublas,
            sampler,
            gpu,
            meter,
            repeats,
            sustained,
            provenance,
        })
    }

    /// Where the numbers come from: date, code, card, rates, command.
    pub fn provenance(&self) -> &[(String, String)] {
        &self.provenance
    }

    /// `<date>-<gpu>`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn file_stem(&self) -> anyhow::Result<String> {
        let card = self.gpu.name()?.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-");
        Ok(format!("{}-{card}", &now()[.."YYYY-MM-DD".len()]))
    }

    /// Random inputs for a shape and up to `batch` rows. Logits have unit variance.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn data(&self, shape: &Shape, batch: u32) -> anyhow::Result<Data> {
        let hidden = u64::from(shape.hidden);
        let sets =
            WEIGHTS_MIN.max((CACHES * self.gpu.cache_bytes()?).div_ceil(shape.weights_bytes()));
        let deviation = 1.0 / f64::from(shape.hidden).sqrt();
        let elements = u64::from(shape.vocab) * hidden;
        let mut hidden_states = self.gpu.random(1, u64::from(batch) * hidden, 1.0, 3)?;
        Ok(Data {
            weights: self.gpu.random(usize::try_from(sets)?, elements, deviation as f32, 4)?,
            hidden_states: hidden_states.pop().context("one matrix was asked for")?,
        })
    }

    /// Checks and times every contender in one cell.
    ///
    /// # Errors
    /// The card failed. A contender that cannot run, or is wrong, has rows that say so.
    pub fn cell(&self, shape: &Shape, batch: u32, data: &Data) -> anyhow::Result<Vec<Record>> {
        let prepared: Vec<_> =
            self.contenders.iter().map(|it| self.prepare(&**it, shape, batch, data)).collect();
        let mut ready = Vec::new();
        for call in prepared.iter().flatten() {
            let call_us = H200.floor_us(shape, batch);
            ready.push((call, Burst::of_call(&self.gpu, &**call, &data.weights, call_us)?));
        }
        let (calls, bursts): (Vec<_>, Vec<_>) = ready.into_iter().unzip();

        let repeats = self.repeats as usize;
        let mut rows = Vec::new();
        for protocol in self.protocols() {
            let times = match protocol {
                Protocol::Cooled => cooled(&self.gpu, &self.meter, &bursts, repeats),
                Protocol::Sustained => sustained(&self.gpu, &self.meter, &bursts, repeats),
            }?;
            let mut ran = calls.iter().zip(&bursts).zip(times);
            for (contender, prepared) in self.contenders.iter().zip(&prepared) {
                let mut record = blank(shape, batch, protocol, contender.name());
                match prepared {
                    Ok(_) => {
                        let ((call, burst), times) = ran.next().context("every burst has times")?;
                        self.fill(&mut record, &***call, burst, times, data)?;
                    }
                    Err(error) => record.detail = format!("{error:#}"),
                }
                rows.push(record);
            }
        }
        Ok(rows)
    }

    /// The rows of a cell that was not begun.
    pub fn left_out(&self, shape: &Shape, batch: u32, why: &str) -> Vec<Record> {
        let row = |protocol| {
            self.contenders.iter().map(move |contender| Record {
                detail: why.into(),
                ..blank(shape, batch, protocol, contender.name())
            })
        };
        self.protocols().flat_map(row).collect()
    }

    fn protocols(&self) -> impl Iterator<Item = Protocol> + '_ {
        let wanted = |&protocol: &Protocol| protocol == Protocol::Cooled || self.sustained;
        Protocol::ALL.into_iter().filter(wanted)
    }

    fn prepare<'a>(
        &'a self,
        contender: &'a dyn Contender,
        shape: &Shape,
        batch: u32,
        data: &Data,
    ) -> anyhow::Result<Box<dyn Call + 'a>> {
        check(&self.gpu, contender, shape, batch)?;
        contender.prepare(&self.gpu, shape, batch, data.hidden_states.address())
    }

    fn fill(
        &self,
        record: &mut Record,
        call: &dyn Call,
        burst: &Burst,
        times: Times,
        data: &Data,
    ) -> anyhow::Result<()> {
        record.detail = call.detail();
        record.calls = u32::try_from(burst.calls())?;
        record.repeats = u32::try_from(times.samples.len())?;
        if let Some(Summary { p10, median, p90 }) = Summary::of(times.samples) {
            (record.p10_us, record.median_us, record.p90_us) = (Some(p10), Some(median), Some(p90));
        }
        (record.sm_mhz, record.power_w) = (times.reading.sm_mhz, times.reading.power_w);
        if record.protocol == Protocol::Cooled {
            let median = |samples| Summary::of(samples).map(|summary| summary.median);
            record.eager_us = median(eager_us(&self.gpu, call, &data.weights)?);
            record.host_us = median(host_us(&self.gpu, call, &data.weights)?);
        }
        Ok(())
    }
}

/// Ours, with the named variant or the planner's.
fn sampler(settings: &Settings, variant: Option<&str>) -> anyhow::Result<Rc<Sampler<Cuda>>> {
    let mut sampler = Sampler::<Cuda>::cuda(settings.device)?;
    sampler.force_variant(variant);
    Ok(Rc::new(sampler))
}

/// Ours with and without noise, then what it is compared with.
fn contenders(
    settings: &Settings,
    planned: &Rc<Sampler<Cuda>>,
    cublas: &Result<Rc<Cublas>, String>,
    kernels: &Rc<Kernels>,
) -> anyhow::Result<Vec<Box<dyn Contender>>> {
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Ours::new(Rc::clone(planned), OURS.into(), 1.0)),
        Box::new(Ours::new(Rc::clone(planned), OURS_GREEDY.into(), 0.0)),
        Box::new(Ours::new(Rc::clone(planned), OURS_WORDS.into(), f32::MIN_POSITIVE)),
    ];
    if settings.programmatic {
        let planned = Rc::clone(planned);
        contenders.push(Box::new(Ours::new(planned, OURS_PROGRAMMATIC.into(), 1.0).programmatic()));
    }
    for name in &settings.beside {
        let forced = sampler(settings, Some(name))?;
        contenders.push(Box::new(Ours::new(forced, format!("{OURS} {name}"), 1.0)));
    }
    match cublas {
        Ok(cublas) => {
            let (cublas, kernels) = (Rc::clone(cublas), Rc::clone(kernels));
            contenders.push(Box::new(Rc::clone(&cublas)));
            contenders.push(Box::new(CublasSampled { cublas, kernels, temperature: 1.0 }));
        }
        Err(reason) => {
            let absent = |name| Absent { name, reason: reason.clone() };
            contenders.push(Box::new(absent(CUBLAS)));
            contenders.push(Box::new(absent(CUBLAS_SAMPLED)));
        }
    }
    Ok(contenders)
}

fn blank(shape: &Shape, batch: u32, protocol: Protocol, contender: &str) -> Record {
    Record {
        shape: shape.name.into(),
        vocab: shape.vocab,
        hidden: shape.hidden,
        batch,
        protocol,
        contender: contender.into(),
        detail: String::new(),
        repeats: 0,
        calls: 0,
        p10_us: None,
        median_us: None,
        p90_us: None,
        floor_us: H200.floor_us(shape, batch),
        sm_mhz: None,
        power_w: None,
        host_us: None,
        eager_us: None,
    }
}

fn provenance(gpu: &Gpu, meter: &Meter) -> anyhow::Result<Vec<(String, String)>> {
    let mut facts = vec![("date".to_owned(), now())];
    let mut fact = |name: &str, value: String| facts.push((name.into(), value));
    fact("PTX sources", manifest("sources"));
    fact("PTX compiler", format!("{}, {}", manifest("codegen"), manifest("compiler")));
    fact("GPU", gpu.name()?);
    let mut version = 0;
    // SAFETY: `version` is valid for writing.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    fact("CUDA of the driver", format!("{}.{}", version / 1000, version % 1000 / 10));
    facts.extend(meter.provenance());
    let command: Vec<_> = std::env::args().skip(1).map(|it| without_folders(&it)).collect();
    facts.push(("command".into(), format!("decode {}", command.join(" "))));
    Ok(facts)
}

/// A value of the manifest's head.
fn manifest(name: &str) -> String {
    let value = |line: &str| {
        let quoted = line.strip_prefix(name)?.strip_prefix(" = \"")?;
        Some(quoted.strip_suffix('"')?.to_owned())
    };
    MANIFEST.lines().find_map(value).unwrap_or_else(|| "unknown".into())
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
