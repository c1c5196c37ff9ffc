//! Device memory of the tests: cases, and outputs between guards, full of poison.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr};
use flash_sampling::cuda::RawOperands;
use flash_sampling::{Features, NoiseKey, Output, Plan, Problem, SamplingParams, Status};
use flash_sampling_kernels::abi::{VARIANTS, Variant};

use super::Gpu;
use super::features::{DeviceFeatures, DeviceReport};
use crate::inputs::{Case, Head, Matrix, Rules};
use crate::panel::POISON;

/// Words before and after each output, and bytes after the workspace and the values.
const GUARD: usize = 64;

/// `[B, S]` words on the device between guards.
pub struct Guarded {
    words: CudaSlice<u32>,
    len: usize,
}

impl Guarded {
    /// Full of poison.
    pub fn new(stream: &Arc<CudaStream>, len: usize) -> Self {
        Self { words: to_device(stream, &vec![POISON; len + 2 * GUARD]), len }
    }

    /// Poisons all of it again.
    pub fn poison(&mut self, stream: &Arc<CudaStream>) {
        let poison = vec![POISON; self.words.len()];
        stream.memcpy_htod(&poison, &mut self.words).expect("copy to the device");
    }

    /// Address of the first word between the guards.
    pub fn address(&self) -> u64 {
        address(&self.words) + 4 * GUARD as u64
    }

    /// The words between the guards, once the stream has run; nobody wrote the guards.
    pub fn read(&self, stream: &Arc<CudaStream>, name: &str) -> Vec<u32> {
        let words = copy_back(stream, &self.words);
        let (before, rest) = words.split_at(GUARD);
        let (words, after) = rest.split_at(self.len);
        let intact = before.iter().chain(after).all(|&word| word == POISON);
        assert!(intact, "{name}: written outside of its {} words", self.len);
        words.to_vec()
    }
}

/// Address of a slice that is used on its own stream only.
pub fn address<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

/// A copy of the values on the device; of none, one that nobody reads.
pub fn to_device<T: DeviceRepr + Default + Clone>(
    stream: &Arc<CudaStream>,
    values: &[T],
) -> CudaSlice<T> {
    let one = [T::default()];
    let values = if values.is_empty() { &one } else { values };
    stream.clone_htod(values).expect("copy to the device")
}

/// The values of a slice, once the stream has run.
pub fn copy_back<T: DeviceRepr>(stream: &Arc<CudaStream>, slice: &CudaSlice<T>) -> Vec<T> {
    let values = stream.clone_dtoh(slice).expect("copy from the device");
    stream.synchronize().expect("the stream runs");
    values
}

/// A head on the device, shared by the cases that share it on the host.
pub struct DeviceWeights {
    head: Arc<Head>,
    weights: CudaSlice<u8>,
    bias: Option<CudaSlice<f32>>,
    row_stride: usize,
}

impl DeviceWeights {
    /// Rows begin at multiples of `alignment_bytes`, with NaN between them.
    pub fn upload(gpu: &Gpu, head: &Arc<Head>, alignment_bytes: usize) -> Arc<Self> {
        let row_stride = aligned_stride(&head.weights, alignment_bytes);
        Arc::new(Self {
            head: Arc::clone(head),
            weights: to_device(&gpu.stream, &head.weights.to_bytes(row_stride)),
            bias: head.bias.as_ref().map(|bias| to_device(&gpu.stream, bias)),
            row_stride,
        })
    }

    /// Whether this is the case's head.
    pub fn is_of(&self, case: &Case) -> bool {
        Arc::ptr_eq(&self.head, &case.head)
    }
}

/// The matrix's stride, or the next that aligns rows.
fn aligned_stride(matrix: &Matrix, alignment_bytes: usize) -> usize {
    let element_bytes = matrix.dtype().bytes() as usize;
    (matrix.row_stride() * element_bytes).next_multiple_of(alignment_bytes) / element_bytes
}

/// A case on the device, its outputs between guards and full of poison.
pub struct DeviceCase {
    /// Sizes and layouts.
    pub problem: Problem,
    head: Arc<DeviceWeights>,
    hidden_states: CudaSlice<u8>,
    temperatures: CudaSlice<f32>,
    seeds: CudaSlice<u64>,
    positions: CudaSlice<u64>,
    outputs: [Guarded; 4],
    with_margins: bool,
    workspace: CudaSlice<u8>,
    features: Option<DeviceFeatures>,
    kept: CudaSlice<u8>,
    raw: DeviceReport,
    processed: DeviceReport,
}

/// Names of [`DeviceCase::outputs`], in their order.
const OUTPUTS: [&str; 4] = ["tokens", "status", "scores", "margins"];

impl DeviceCase {
    /// Copies the case to the device; its head is there.
    pub fn upload(
        gpu: &Gpu,
        case: &Case,
        head: &Arc<DeviceWeights>,
        alignment_bytes: usize,
    ) -> Self {
        assert!(head.is_of(case), "{}: another head", case.name);
        let (stream, states) = (&gpu.stream, &case.hidden_states);
        let host_head = &*case.head;
        let hidden_stride = aligned_stride(states, alignment_bytes);
        let problem = Problem::builder(
            case.batch() as u64,
            host_head.weights.rows() as u64,
            states.columns() as u64,
        )
        .vocab_valid(host_head.vocab_valid as u64)
        .first_token(host_head.first_token.into())
        .draws(case.draws.into())
        .weights_dtype(host_head.weights.dtype())
        .hidden_dtype(states.dtype())
        .weights_stride(head.row_stride as u64)
        .hidden_stride(hidden_stride as u64)
        .bias(head.bias.is_some())
        .features(features_of(case))
        .build()
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let (temperatures, seeds, positions) = columns(&case.rows);
        let workspace_bytes = flash_sampling::workspace_bytes(&problem) as usize;
        let plan = |variant: &Variant| {
            Plan::for_gpu(&problem, &gpu.sampler.device_limits(), Some(variant.name)).ok()
        };
        let plans = VARIANTS.iter().filter_map(plan);
        let kept_bytes = plans.map(|plan| plan.kept_bytes).max().expect("one variant takes all");
        let Features { rules, filters, raw, processed, .. } = problem.features();
        let report = |wanted| DeviceReport::new(stream, wanted, case.batch(), case.draws as usize);
        let outputs = || Guarded::new(stream, problem.outputs() as usize);
        let device_case = Self {
            problem,
            head: Arc::clone(head),
            hidden_states: to_device(stream, &states.to_bytes(hidden_stride)),
            temperatures: to_device(stream, &temperatures),
            seeds: to_device(stream, &seeds),
            positions: to_device(stream, &positions),
            outputs: std::array::from_fn(|_| outputs()),
            with_margins: true,
            workspace: to_device(stream, &vec![0xA5; workspace_bytes + GUARD]),
            features: (rules || filters)
                .then(|| DeviceFeatures::upload(stream, &case.rows, &case.rules)),
            // NaN: who reads a value that was not written shows it.
            kept: to_device(stream, &vec![0xFF; kept_bytes as usize + GUARD]),
            raw: report(raw),
            processed: report(processed),
        };
        let (workspace, raw_stream) = (address(&device_case.workspace), stream.cu_stream().cast());
        // SAFETY: the workspace has these bytes, on a stream of the same context.
        let cleared =
            unsafe { gpu.sampler.clear_workspace(workspace, workspace_bytes as u64, raw_stream) };
        cleared.expect("clear the workspace");
        device_case
    }

    /// Gives the rows new parameters, in place and in stream order.
    pub fn set_rows(&mut self, gpu: &Gpu, rows: &[SamplingParams]) {
        let (temperatures, seeds, positions) = columns(rows);
        let copy = "copy to the device";
        gpu.stream.memcpy_htod(&temperatures, &mut self.temperatures).expect(copy);
        gpu.stream.memcpy_htod(&seeds, &mut self.seeds).expect(copy);
        gpu.stream.memcpy_htod(&positions, &mut self.positions).expect(copy);
    }

    /// Gives the rows new parameters and rules, in place and in stream order.
    pub fn set_features(&mut self, gpu: &Gpu, rows: &[SamplingParams], rules: &[Rules]) {
        self.set_rows(gpu, rows);
        let features = self.features.as_mut().expect("the case has features");
        features.set(&gpu.stream, rows, rules);
    }

    /// Poisons the outputs again.
    pub fn poison(&mut self, gpu: &Gpu) {
        self.outputs.iter_mut().for_each(|output| output.poison(&gpu.stream));
        self.raw.poison(&gpu.stream);
        self.processed.poison(&gpu.stream);
    }

    /// Makes it the same call without margins.
    pub fn drop_margins(&mut self, gpu: &Gpu) {
        self.with_margins = false;
        self.poison(gpu);
        let kept = vec![0xFF; self.kept.len()];
        gpu.stream.memcpy_htod(&kept, &mut self.kept).expect("copy to the device");
    }

    /// Where everything is.
    pub fn operands(&self) -> RawOperands {
        let [tokens, status, scores, margins] = self.outputs.each_ref().map(Guarded::address);
        RawOperands {
            weights: address(&self.head.weights),
            hidden_states: address(&self.hidden_states),
            bias: self.head.bias.as_ref().map_or(0, address),
            temperatures: address(&self.temperatures),
            seeds: address(&self.seeds),
            positions: address(&self.positions),
            tokens,
            status,
            scores,
            margins: if self.with_margins { margins } else { 0 },
            workspace: address(&self.workspace),
            workspace_bytes: (self.workspace.len() - GUARD) as u64,
            features: self.features.as_ref().map_or(0, DeviceFeatures::address),
            kept: address(&self.kept),
            kept_bytes: (self.kept.len() - GUARD) as u64,
            raw: self.raw.operands(),
            processed: self.processed.operands(),
        }
    }

    /// What the stream's last call wrote. Nothing around it may have changed, and the
    /// workspace must be zero again.
    pub fn output(&self, gpu: &Gpu) -> Output {
        let mut names = OUTPUTS.into_iter();
        let [tokens, status, scores, margins] = self
            .outputs
            .each_ref()
            .map(|output| output.read(&gpu.stream, names.next().unwrap_or_default()));
        let workspace = copy_back(&gpu.stream, &self.workspace);
        let (workspace, guard) = workspace.split_at(workspace.len() - GUARD);
        assert!(workspace.iter().all(|&byte| byte == 0), "the workspace is not zero again");
        assert!(guard.iter().all(|&byte| byte == 0xA5), "written behind the workspace");
        let kept = copy_back(&gpu.stream, &self.kept);
        let guard = &kept[kept.len() - GUARD..];
        assert!(guard.iter().all(|&byte| byte == 0xFF), "written behind the values");
        let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect();
        let mut output = Output::default();
        output.tokens = tokens;
        output.status = status.into_iter().map(Status::from_bits).collect();
        output.scores = floats(scores);
        output.margins = floats(margins);
        output.raw = self.raw.read(&gpu.stream, "raw report");
        output.processed = self.processed.read(&gpu.stream, "processed report");
        output
    }
}

/// What a case asks for beyond temperature and key.
fn features_of(case: &Case) -> Features {
    let plain = |row: &SamplingParams| {
        let NoiseKey { seed, position } = row.key;
        SamplingParams::new(row.temperature, seed, position)
    };
    let edited = |row: &SamplingParams| {
        let mut edited = plain(row).with_penalties(row.penalties);
        edited.edit_order = row.edit_order;
        edited
    };
    Features {
        rules: !case.rules.is_empty() || case.rows.iter().any(|row| *row != plain(row)),
        filters: case.rows.iter().any(|row| *row != edited(row)),
        raw: case.raw,
        processed: case.processed,
        transform: case.transform,
    }
}

/// Rows as the columns that the device reads.
fn columns(rows: &[SamplingParams]) -> (Vec<f32>, Vec<u64>, Vec<u64>) {
    (
        rows.iter().map(|row| row.temperature).collect(),
        rows.iter().map(|row| row.key.seed).collect(),
        rows.iter().map(|row| row.key.position).collect(),
    )
}
