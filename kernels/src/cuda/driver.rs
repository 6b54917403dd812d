//! The CUDA driver, opened when asked for.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{DriverError, result};

use super::driver_graph::DriverGraph;
use super::runner::{Argument, Launch, Place, Recorded, Repeated, Runner, pointers};
use crate::error::{Error, Result};
use crate::gpu::{CudaSurvey, Gpu};

/// A fat binary on a border that the driver can read it from as it stands.
#[repr(align(16))]
struct Image<const BYTES: usize>([u8; BYTES]);

// `IMAGES`: name and fat binary of every file of `kernels/cuda`; `TARGETS`: the chips that they hold code for.
include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// What the driver must speak: it reads no code of a newer compiler.
const OLDEST_DRIVER: (i32, i32) = (13, 0);
/// Above this, a kernel's dynamic shared memory must be asked for.
const PLAIN_SHARED_BYTES: usize = 48 << 10;

/// A GPU through its driver: one context, one stream, the modules of all kernels.
pub(super) struct Driver {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    /// Functions that have been used, and the dynamic shared memory they were last allowed.
    functions: Mutex<HashMap<&'static str, (sys::CUfunction, usize)>>,
    name: String,
    ordinal: usize,
}

// SAFETY: handles of the driver may be used by any thread that has made the context its own, which every call does.
unsafe impl Send for Driver {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Driver {}

impl Driver {
    /// The GPU of this number.
    ///
    /// # Errors
    /// [`Error::Cuda`] with what is missing and what to do: no driver, one that is too old, no such GPU, one without code in
    /// this program or without memory that both sides may touch.
    pub(super) fn open(ordinal: usize) -> Result<Self> {
        let survey = survey();
        if let Some(problem) = survey.problem {
            return Err(Error::Cuda(problem));
        }
        let Some(gpu) = survey.gpus.get(ordinal) else {
            let problem = format!("device {ordinal} is not there: the driver reports {} devices", survey.gpus.len());
            return Err(Error::Cuda(problem + ", numbered from 0"));
        };
        if gpu.compute_capability < (8, 0) {
            let (major, minor) = gpu.compute_capability;
            let problem = format!("{} has compute capability {major}.{minor}, the kernels need 8.0", gpu.name);
            return Err(Error::Cuda(problem + " (Ampere, 2020) or later; use the cpu"));
        }
        Self::of(gpu).map_err(|error| failed("opening the device", error))?
    }

    fn of(gpu: &Gpu) -> std::result::Result<Result<Self>, DriverError> {
        let device = result::device::get(gpu.ordinal as i32)?;
        // SAFETY: `device` is a handle that the driver has just given.
        if unsafe { result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? }
            == 0
        {
            let problem = format!("{}: this system lets only one of processor and GPU touch shared memory", gpu.name);
            return Ok(Err(Error::Cuda(
                problem + " at a time (WSL, Windows); use Linux on the machine itself, or the cpu",
            )));
        }
        // SAFETY: as above; released when dropped.
        let context = unsafe { result::primary_ctx::retain(device)? };
        // SAFETY: a context that is retained.
        unsafe { result::ctx::set_current(context)? };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let (major, minor) = gpu.compute_capability;
        let mut driver = Self {
            device,
            context,
            stream,
            modules: Vec::with_capacity(IMAGES.len()),
            functions: Mutex::default(),
            name: format!("sm_{major}{minor}"),
            ordinal: gpu.ordinal,
        };
        for (_, image) in IMAGES {
            // SAFETY: a whole fat binary, as the compiler wrote it.
            driver.modules.push(unsafe { result::module::load_data(image.as_ptr().cast())? });
        }
        Ok(Ok(driver))
    }

    /// Makes the context that of the calling thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: retained until self is dropped.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| failed("entering the context", error))
    }

    /// The function, allowed as much dynamic shared memory as the launch takes.
    fn function(&self, launch: &Launch) -> Result<sys::CUfunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let (function, allowed) = match functions.get_mut(launch.kernel) {
            Some(known) => known,
            None => {
                let found = self.find(launch.kernel)?;
                functions.entry(launch.kernel).or_insert((found, PLAIN_SHARED_BYTES))
            }
        };
        if launch.shared_bytes > *allowed {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of a module that is loaded.
            let asked =
                unsafe { result::function::set_function_attribute(*function, attribute, launch.shared_bytes as i32) };
            asked.map_err(|error| failed(launch.kernel, error))?;
            *allowed = launch.shared_bytes;
        }
        Ok(*function)
    }

    fn find(&self, kernel: &str) -> Result<sys::CUfunction> {
        let name = CString::new(kernel).expect("kernels are named by literals");
        // SAFETY: modules that are loaded.
        let of = |module: &sys::CUmodule| unsafe { result::module::get_function(*module, name.clone()) }.ok();
        let found = self.modules.iter().find_map(of);
        found.ok_or_else(|| Error::Cuda(format!("no kernel `{kernel}` in this program: our bug")))
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }
}

impl Runner for Driver {
    fn name(&self) -> &str {
        &self.name
    }

    fn ordinal(&self) -> Option<usize> {
        Some(self.ordinal)
    }

    fn enqueue(&self, work: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.enter()?;
        work(self.stream as u64)
    }

    fn allocate(&self, bytes: usize, place: Place) -> Result<u64> {
        self.enter()?;
        let out_of = |error: DriverError| match error {
            DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                let free = self.memory().map_or(0, |memory| memory.0);
                let problem = format!("{bytes} bytes asked of {}, which has {free} left", self.name);
                Error::Cuda(
                    problem
                        + "; lower `--kv-memory` or `--max-batch`, take a smaller or quantised model, or split it over \
                     several GPUs (`--device cuda:0+1`)",
                )
            }
            error => failed("allocating memory", error),
        };
        if place == Place::Device {
            // SAFETY: what it holds is undefined, as the trait says.
            return unsafe { result::malloc_sync(bytes) }.map_err(out_of);
        }
        let everywhere = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        // SAFETY: as above.
        let address = unsafe { result::malloc_managed(bytes, everywhere) }.map_err(out_of)?;
        let advice = sys::CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        // SAFETY: the whole of an allocation that was just made.
        let advised = unsafe {
            result::mem_advise(address, bytes, advice, self.location())
                .and_then(|()| result::mem_prefetch_async(address, bytes, self.location(), self.stream))
        };
        advised.map_err(|error| failed("placing memory on the device", error))?;
        Ok(address)
    }

    unsafe fn free(&self, address: u64, _bytes: usize, _place: Place) {
        // A context that cannot be entered takes its memory with it.
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    unsafe fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(address, byte, bytes, self.stream) }
            .map_err(|error| failed("filling memory", error))
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise. From memory that is not pinned the driver returns once it has taken its copy.
        unsafe { result::memcpy_htod_async(to, from, self.stream) }
            .map_err(|error| failed("copying to the device", error))
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream) }
            .map_err(|error| failed("copying from the device", error))
    }

    unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
        self.enter()?;
        let function = self.function(launch)?;
        let ([x, y, z], [width, height, depth]) = (launch.grid, launch.block);
        let shared = launch.shared_bytes as u32;
        let mut pointers = pointers(arguments);
        // SAFETY: the caller's promise; the driver copies arguments before it returns.
        unsafe {
            result::launch_kernel(function, (x, y, z), (width, height, depth), shared, self.stream, &mut pointers)
        }
        .map_err(|error| failed(launch.kernel, error))
    }

    fn repeated(&self, launches: &[Recorded]) -> Result<Box<dyn Repeated>> {
        self.enter()?;
        let functions = launches.iter().map(|recorded| self.function(&recorded.launch)).collect::<Result<_>>()?;
        let graph = DriverGraph::new(self.context, self.stream, launches, functions);
        Ok(Box::new(graph.map_err(|error| failed("making a graph", error))?))
    }

    fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: a stream that lives as long as self.
        unsafe { result::stream::synchronize(self.stream) }.map_err(|error| failed("waiting for the device", error))
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        result::mem_get_info().map_err(|error| failed("asking for free memory", error))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What fails here is gone already.
        if self.enter().is_err() {
            return;
        }
        // SAFETY: made by `of`, and nobody else holds them.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            for module in self.modules.drain(..) {
                let _ = result::module::unload(module);
            }
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

pub(super) fn failed(what: &str, error: DriverError) -> Error {
    Error::Cuda(format!("{what}: the driver failed: {error:?}"))
}

/// What this build and this machine have of CUDA. Nothing is opened that stays open.
pub(super) fn survey() -> CudaSurvey {
    let mut survey = CudaSurvey { built_for: Some(TARGETS), ..CudaSurvey::default() };
    survey.problem = look(&mut survey).err();
    survey
}

/// Fills in what is found; the error is what stands in the way.
fn look(survey: &mut CudaSurvey) -> std::result::Result<(), String> {
    // SAFETY: only asks whether the library can be opened.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "no NVIDIA driver is installed (libcuda.so.1 is not found); install one for CUDA 13 (version 580 or \
                    later), or use the cpu"
                .into(),
        );
    }
    let failed = |error: DriverError| format!("the NVIDIA driver is there but fails: {error:?}; use the cpu");
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => {
            return Err("the NVIDIA driver finds no GPU; use the cpu".into());
        }
        other => other.map_err(failed)?,
    }
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(failed)?;
    let (major, minor) = (version / 1000, version % 1000 / 10);
    survey.driver = Some((major, minor));
    let count = result::device::get_count().map_err(failed)?;
    for ordinal in 0..count {
        survey.gpus.push(describe(ordinal).map_err(failed)?);
    }
    if (major, minor) < OLDEST_DRIVER {
        let (oldest, zero) = OLDEST_DRIVER;
        let problem =
            format!("the NVIDIA driver speaks CUDA {major}.{minor}, this program's kernels need {oldest}.{zero}");
        return Err(problem + "; install driver 580 or later, or use the cpu");
    }
    Ok(())
}

fn describe(ordinal: i32) -> std::result::Result<Gpu, DriverError> {
    use Attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = result::device::get(ordinal)?;
    // SAFETY: `device` is a handle that the driver has just given.
    let (memory_bytes, major, minor) = unsafe {
        (
            result::device::total_mem(device)?,
            result::device::get_attribute(device, MAJOR)?,
            result::device::get_attribute(device, MINOR)?,
        )
    };
    let name = result::device::get_name(device)?;
    Ok(Gpu { ordinal: ordinal as usize, name, compute_capability: (major, minor), memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_needs_no_driver() {
        let survey = survey();
        assert_eq!(survey.built_for, Some(TARGETS));
        if survey.gpus.is_empty() {
            assert!(survey.problem.is_some_and(|problem| problem.contains("use the cpu")));
            println!("skipped: no CUDA device to describe");
            return;
        }
        assert!(survey.gpus.iter().enumerate().all(|(index, gpu)| gpu.ordinal == index && gpu.memory_bytes > 0));
    }

    #[test]
    fn every_family_of_kernels_is_in_the_program() {
        let names: Vec<&str> = IMAGES.iter().map(|(name, _)| *name).collect();
        for family in ["activation", "embed", "exchange", "experts", "kv", "norm", "pool", "residual", "rope"] {
            assert!(names.contains(&family), "{family} of {names:?}");
        }
        // A fat binary begins with this number.
        assert!(IMAGES.iter().all(|(_, image)| image.starts_with(&0xba55_ed50u32.to_le_bytes())));
    }
}
