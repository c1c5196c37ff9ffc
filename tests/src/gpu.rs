//! The GPU under test: our sampler through its engine door, on memory and a stream of
//! the crate `cudarc` in the same primary context.

mod features;
mod gate;
mod memory;
mod turn;

use std::env;
use std::io::Write;
use std::sync::{Arc, Once, OnceLock};

use cudarc::driver::{CudaContext, CudaStream};
use flash_sampling::cuda::{Cuda, DeviceHead};
use flash_sampling::{CpuOptions, CudaFailure, Error, Need, Operand, Output, Plan, Sampler};
use flash_sampling_kernels::abi::{VARIANTS, Variant};

pub use gate::Gate;
pub use memory::{DeviceCase, DeviceWeights, Guarded, address, copy_back, to_device};
pub use turn::Turn;

use crate::inputs::{Case, Head};
use crate::panel::{CpuSampler, Effort, Implementation, POISON, Panel, assert_same_report};

/// `CUDA_ERROR_NO_DEVICE`: also what the stub of `cargo xtask cuda-stub` answers.
pub const NO_DEVICE: u32 = 100;

/// Whether an environment variable is 1.
pub fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}

/// Prints a line, not by `eprintln!`, which the test harness swallows.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// A sampler, and a stream of cudarc's in the same context.
pub struct Gpu {
    /// Ours; all tests of a process share it, since loading takes a while.
    pub sampler: &'static Sampler<Cuda>,
    /// Theirs, non-blocking.
    pub stream: Arc<CudaStream>,
}

impl Gpu {
    /// The first device. Without one: `None` and one loud line, or a failure if
    /// `FLASH_SAMPLING_REQUIRE_GPU` is 1.
    pub fn open() -> Option<Self> {
        static SAMPLER: OnceLock<Result<Sampler<Cuda>, Error>> = OnceLock::new();
        static SKIPPED: Once = Once::new();
        let sampler = match SAMPLER.get_or_init(|| Sampler::cuda(0)) {
            Ok(sampler) => sampler,
            Err(error @ Error::Cuda(CudaFailure { code: NO_DEVICE, .. })) => {
                assert!(!is_set("FLASH_SAMPLING_REQUIRE_GPU"), "a GPU is required: {error}");
                SKIPPED.call_once(|| say(&format!("SKIPPED: no GPU for these tests ({error})")));
                return None;
            }
            Err(error) => panic!("the GPU cannot be used: {error}"),
        };
        let context = CudaContext::new(0).expect("cudarc opens the device");
        // SAFETY: everything of a test is used on one stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().expect("cudarc makes a stream");
        Some(Self { sampler, stream })
    }

    /// A sampler of the test's own.
    pub fn own_sampler(&self) -> Sampler<Cuda> {
        Sampler::cuda(0).expect("the device opens again")
    }

    /// Enqueues the case with the planner's choice, or with the named variant.
    pub fn enqueue(&self, case: &DeviceCase, variant: Option<&str>) -> Result<(), Error> {
        let plan = Plan::for_gpu(&case.problem, &self.sampler.device_limits(), variant)?;
        let operands = case.operands();
        // SAFETY: the plan is the sampler's but for the forced variant, which it checks
        // alike. The case's memory has the problem's sizes and lives as long as it; its
        // workspace is zero; the stream is of the same context.
        unsafe {
            self.sampler.enqueue(&plan, &case.problem, &operands, self.stream.cu_stream().cast())
        }
    }
}

/// Every variant that this GPU can run, behind the CPU: the engine door for each, and
/// the easy door. `FLASH_SAMPLING_VARIANTS` says which, by beginnings of their names with commas
/// between: a test that takes too long under a sanitizer can be cut so.
pub fn every_variant() -> Option<Panel> {
    let device = Gpu::open()?.sampler.device_limits().compute_capability;
    let asked = env::var("FLASH_SAMPLING_VARIANTS").unwrap_or_default();
    let is_asked = |name: &str| asked.split(',').any(|beginning| name.starts_with(beginning));
    let mut members: Vec<Box<dyn Implementation>> = Vec::new();
    members.push(Box::new(CpuSampler::with(CpuOptions::default())?));
    for variant in VARIANTS.iter().filter(|v| v.runs_on(device) && is_asked(v.name)) {
        members.push(Box::new(EngineDoor::open(Some(variant.name))?));
    }
    assert!(members.len() > 1, "FLASH_SAMPLING_VARIANTS={asked}: no variant of this GPU");
    if !asked.is_empty() {
        say(&format!("ONLY the variants {asked} (FLASH_SAMPLING_VARIANTS)"));
    }
    members.push(Box::new(EasyDoor::open()?));
    Some(Panel::new(members, Effort::Device))
}

/// What the planner chooses, and nobody beside it.
pub fn planners_choice() -> Option<Panel> {
    Some(Panel::new(vec![Box::new(EngineDoor::open(None)?)], Effort::Device))
}

/// The engine door with one variant, or with the planner's choice.
pub struct EngineDoor {
    name: String,
    gpu: Gpu,
    variant: Option<&'static Variant>,
    head: Option<Arc<DeviceWeights>>,
}

impl EngineDoor {
    /// The first device, as [`Gpu::open`], with the variant of that name.
    pub fn open(variant: Option<&str>) -> Option<Self> {
        let gpu = Gpu::open()?;
        let variant = variant.map(|name| {
            let found = VARIANTS.iter().find(|variant| variant.name == name);
            found.unwrap_or_else(|| panic!("no variant {name}"))
        });
        let name = variant.map_or("the planner's choice", |variant| variant.name);
        let name = format!("{name} on {}", gpu.sampler.device_name());
        Some(Self { name, gpu, variant, head: None })
    }

    fn enqueue(&self, case: &DeviceCase) -> Result<(), Error> {
        self.gpu.enqueue(case, self.variant.map(|variant| variant.name))
    }

    /// Rows with filters go another way where no margins are wanted: all else is to be the same.
    fn check_without_margins(&self, case: &mut DeviceCase, name: &str, expected: &Output) {
        case.drop_margins(&self.gpu);
        let name = format!("{name}: {}, without margins", self.name);
        self.enqueue(case).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut found = case.output(&self.gpu);
        assert!(found.margins.iter().all(|margin| margin.to_bits() == POISON), "{name}: margins");
        found.margins.clone_from(&expected.margins);
        assert_same(&name, &found, expected);
    }
}

impl Implementation for EngineDoor {
    fn name(&self) -> &str {
        &self.name
    }

    fn sums_weights(&self) -> bool {
        self.variant.is_none_or(|variant| variant.sums_weights)
    }

    fn sample(&mut self, case: &Case, output: &mut Output) -> bool {
        let alignment = self.variant.map_or(1, |variant| variant.alignment_bytes as usize);
        let head = match self.head.take() {
            Some(head) if head.is_of(case) => head,
            _ => DeviceWeights::upload(&self.gpu, &case.head, alignment),
        };
        let head = self.head.insert(head);
        let mut device_case = DeviceCase::upload(&self.gpu, case, head, alignment);
        match self.enqueue(&device_case) {
            Ok(()) => {
                *output = device_case.output(&self.gpu);
                if device_case.problem.features().filters {
                    self.check_without_margins(&mut device_case, &case.name, output);
                }
            }
            // Anything else that a variant refused would leave its answer unasked for.
            Err(Error::Unsupported {
                need: Need::WeightsDtype | Need::HiddenDtype | Need::Rows | Need::RowStrideBytes,
                ..
            }) => return false,
            Err(error) => panic!("{}: {}: {error}", case.name, self.name),
        }
        true
    }
}

/// The easy door, with the planner's choice.
pub struct EasyDoor {
    name: String,
    sampler: Sampler<Cuda>,
    head: Option<(Arc<Head>, DeviceHead)>,
}

impl EasyDoor {
    /// The first device, as [`Gpu::open`].
    pub fn open() -> Option<Self> {
        let sampler = Gpu::open()?.own_sampler();
        let name = format!("the easy door on {}", sampler.device_name());
        Some(Self { name, sampler, head: None })
    }
}

impl Implementation for EasyDoor {
    fn name(&self) -> &str {
        &self.name
    }

    fn sums_weights(&self) -> bool {
        true
    }

    fn sample(&mut self, case: &Case, output: &mut Output) -> bool {
        let head = match self.head.take() {
            Some((head, uploaded)) if Arc::ptr_eq(&head, &case.head) => (head, uploaded),
            _ => (Arc::clone(&case.head), upload(&self.sampler, &case.head)),
        };
        let (host_head, head) = head;
        let (_, head) = self.head.insert((host_head, head.with_transform(case.transform)));
        let hidden_states = case.hidden_states.view(Operand::HiddenStates, 0, case.batch());
        let rules = case.token_rules();
        self.sampler
            .sample_with_rules(head, hidden_states, &case.rows, &rules, case.draws, output)
            .unwrap_or_else(|error| panic!("{}: {}: {error}", case.name, self.name));
        true
    }
}

/// The easy door's upload of a head.
pub fn upload(sampler: &Sampler<Cuda>, head: &Head) -> DeviceHead {
    let weights = head.weights.view(Operand::Weights, 0, head.weights.rows());
    sampler
        .upload(weights, head.bias.as_deref())
        .expect("the head fits the device")
        .with_vocab_valid(head.vocab_valid as u64)
        .with_first_token(head.first_token.into())
}

/// What the CPU back end answers.
pub fn on_cpu(case: &Case) -> Output {
    let mut output = Output::default();
    (output.raw.wanted, output.processed.wanted) = (case.raw, case.processed);
    let rules = case.token_rules();
    Sampler::cpu()
        .sample(&case.inputs().with_token_rules(&rules), &case.rows, case.draws, &mut output)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    output
}

/// Every bit of all four outputs, and reports.
pub fn assert_same(name: &str, found: &Output, expected: &Output) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(found.tokens, expected.tokens, "{name}: tokens");
    assert_eq!(found.status, expected.status, "{name}: status");
    assert_eq!(bits(&found.scores), bits(&expected.scores), "{name}: scores");
    assert_eq!(bits(&found.margins), bits(&expected.margins), "{name}: margins");
    assert_same_report(name, &found.raw, &expected.raw, true);
    assert_same_report(name, &found.processed, &expected.processed, true);
}
