//! The matrix product through cuBLASLt, loaded at run time.

use std::ffi::c_void;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, ensure};
use cudarc::cublaslt::{result, sys};
use flash_sampling_kernels::abi::kept::values_stride;
use half::bf16;

use crate::contender::{Call, Contender, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::report::CUBLAS;
use crate::shapes::Shape;

/// Scratch that an algorithm may use: what PyTorch allows on Hopper.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// `CUBLAS_OP_T` of the library's `cublas_api.h`.
static TRANSPOSED: i32 = 1;

/// The type of weights and hidden states.
const INPUTS: sys::cudaDataType = sys::cudaDataType::CUDA_R_16BF;

/// The product alone, with the algorithm that the library's heuristic puts first:
/// bf16 inputs, f32 accumulation, bf16 logits `[B, V]`.
#[derive(Debug)]
pub struct Cublas {
    handle: sys::cublasLtHandle_t,
}

impl Cublas {
    /// Loads the library, from `path` if given, else from where the loader looks.
    ///
    /// # Errors
    /// It was not found, or does not start.
    pub fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = path {
            // SAFETY: a library of NVIDIA's; its initialization runs nothing of ours.
            let library = unsafe { libloading::Library::new(path) }
                .with_context(|| format!("cannot load {}", path.display()))?;
            // cudarc asks for the library by name; the loader answers with the one that
            // is loaded already, as long as it stays so.
            std::mem::forget(library);
        }
        // SAFETY: as above.
        let found = unsafe { sys::is_culib_present() };
        ensure!(found, "libcublasLt was not found; --cublaslt or LD_LIBRARY_PATH names it");
        let handle = result::create_handle().context("cuBLASLt does not start")?;
        Ok(Self { handle })
    }

    /// The library's version.
    pub fn version(&self) -> String {
        // SAFETY: the library is loaded, and the function has no preconditions.
        let version = unsafe { sys::cublasLtGetVersion() };
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; calls borrow `self`. There is nobody left
        // to tell of an error.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Contender for Rc<Cublas> {
    fn name(&self) -> &str {
        CUBLAS
    }

    fn prepare<'a>(
        &'a self,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
    ) -> anyhow::Result<Box<dyn Call + 'a>> {
        let product = Product::new(self, gpu, shape, batch, hidden_states, Logits::Bf16)?;
        Ok(Box::new(product))
    }
}

/// How a product's logits are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logits {
    /// `[B, V]` bf16.
    Bf16,
    /// `[B, kept::values_stride(V)]` f32, the first V of each row written: what the kernel that
    /// finishes rows reads.
    F32,
}

impl Logits {
    const fn dtype(self) -> sys::cudaDataType {
        match self {
            Self::Bf16 => sys::cudaDataType::CUDA_R_16BF,
            Self::F32 => sys::cudaDataType::CUDA_R_32F,
        }
    }

    const fn element_bytes(self) -> usize {
        match self {
            Self::Bf16 => size_of::<bf16>(),
            Self::F32 => size_of::<f32>(),
        }
    }

    const fn stride(self, vocab: u32) -> u64 {
        match self {
            Self::Bf16 => vocab as u64,
            Self::F32 => values_stride(vocab),
        }
    }
}

/// One product: logits `[B, V]` = hidden states `[B, D]` · weights `[V, D]`ᵀ.
pub(crate) struct Product<'a> {
    cublas: &'a Cublas,
    gpu: &'a Gpu,
    hidden_states: u64,
    stored: Logits,
    logits: Buffer,
    workspace: Buffer,
    operation: Operation,
    algorithm: sys::cublasLtMatmulHeuristicResult_t,
}

impl<'a> Product<'a> {
    pub(crate) fn new(
        cublas: &'a Cublas,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
        stored: Logits,
    ) -> anyhow::Result<Self> {
        let operation = Operation::new(shape, batch, stored)?;
        let algorithm = operation.heuristic(cublas)?;
        let elements = u64::from(batch) * stored.stride(shape.vocab);
        Ok(Self {
            cublas,
            gpu,
            hidden_states,
            stored,
            logits: gpu.allocate(elements * stored.element_bytes() as u64)?,
            workspace: gpu.allocate(WORKSPACE_BYTES)?,
            operation,
            algorithm,
        })
    }

    /// Bytes of the logits.
    pub(crate) fn logits_bytes(&self) -> u64 {
        self.logits.bytes() as u64
    }

    /// Address of the logits.
    pub(crate) const fn logits(&self) -> u64 {
        self.logits.address()
    }
}

impl Call for Product<'_> {
    fn detail(&self) -> String {
        format!("first heuristic, {} KiB of workspace", self.algorithm.workspaceSize >> 10)
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let Operation { description, weights: w, hidden_states: h, logits: l } = &self.operation;
        let logits = self.logits.address();
        // SAFETY: the descriptions are alive and match the buffers; the scalars are read
        // before the call returns, as they are in host memory; the caller promises the
        // inputs.
        unsafe {
            result::matmul(
                self.cublas.handle,
                description.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                weights as *const c_void,
                w.0,
                self.hidden_states as *const c_void,
                h.0,
                logits as *const c_void,
                l.0,
                logits as *mut c_void,
                l.0,
                &raw const self.algorithm.algo,
                self.workspace.address() as *mut c_void,
                self.workspace.bytes(),
                self.gpu.stream().cast(),
            )
        }?;
        Ok(())
    }

    fn poison(&self) -> anyhow::Result<()> {
        // A NaN in every element.
        self.gpu.fill(&self.logits, 0xFF)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        ensure!(matches!(self.stored, Logits::Bf16), "only bf16 logits are compared");
        let count = self.logits.bytes() / self.stored.element_bytes();
        Ok(Outcome::Logits(self.gpu.download(&self.logits, count)?))
    }
}

/// What the library is told of a product. It thinks in columns: a row-major `[V, D]` is
/// its `[D, V]`, so the weights are transposed and the logits come out row-major.
struct Operation {
    description: Description,
    weights: Layout,
    hidden_states: Layout,
    logits: Layout,
}

impl Operation {
    fn new(shape: &Shape, batch: u32, stored: Logits) -> anyhow::Result<Self> {
        let description = Description(result::create_matmul_desc(
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType::CUDA_R_32F,
        )?);
        // SAFETY: the description is alive, and the attribute is of that type.
        unsafe {
            result::set_matmul_desc_attribute(
                description.0,
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                (&raw const TRANSPOSED).cast(),
                size_of_val(&TRANSPOSED),
            )
        }?;
        Ok(Self {
            description,
            weights: Layout::new(INPUTS, shape.hidden, shape.vocab, shape.hidden.into())?,
            hidden_states: Layout::new(INPUTS, shape.hidden, batch, shape.hidden.into())?,
            logits: Layout::new(stored.dtype(), shape.vocab, batch, stored.stride(shape.vocab))?,
        })
    }

    fn heuristic(&self, cublas: &Cublas) -> anyhow::Result<sys::cublasLtMatmulHeuristicResult_t> {
        let preference = Preference(result::create_matmul_pref()?);
        let bytes = usize::try_from(WORKSPACE_BYTES)?;
        // SAFETY: the preference is alive, and the attribute is of that type.
        unsafe {
            result::set_matmul_pref_attribute(
                preference.0,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const bytes).cast(),
                size_of_val(&bytes),
            )
        }?;
        // SAFETY: every description is alive.
        let found = unsafe {
            result::get_matmul_algo_heuristic(
                cublas.handle,
                self.description.0,
                self.weights.0,
                self.hidden_states.0,
                self.logits.0,
                self.logits.0,
                preference.0,
            )
        };
        found.context("cuBLASLt has no algorithm")
    }
}

/// A column-major matrix.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// `stride` elements lie between the begins of two columns.
    fn new(dtype: sys::cudaDataType, rows: u32, columns: u32, stride: u64) -> anyhow::Result<Self> {
        let stride = i64::try_from(stride)?;
        Ok(Self(result::create_matrix_layout(dtype, rows.into(), columns.into(), stride)?))
    }
}

struct Description(sys::cublasLtMatmulDesc_t);

struct Preference(sys::cublasLtMatmulPreference_t);

macro_rules! destroy {
    ($($owner:ident: $destroy:path),*) => {
        $(impl Drop for $owner {
            fn drop(&mut self) {
                // SAFETY: created once, destroyed once. There is nobody left to tell.
                let _ = unsafe { $destroy(self.0) };
            }
        })*
    };
}

destroy! {
    Layout: result::destroy_matrix_layout,
    Description: result::destroy_matmul_desc,
    Preference: result::destroy_matmul_pref
}
