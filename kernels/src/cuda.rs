//! What CUDA devices this machine has. Operations are not ported yet: a [`Device`](crate::Device) cannot be made of one.
//!
//! Nothing is linked: the driver library is looked for when asked, so one program serves machines with and without it.

use cudarc::driver::{DriverError, result, sys};

use crate::error::{Error, Result};

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (i32, i32),
    pub memory_bytes: usize,
}

/// The GPUs of this machine, in the driver's order; none where there is no driver or no device.
///
/// # Errors
/// [`Error::Cuda`] with the driver's own words when it is there but fails.
pub fn probe() -> Result<Vec<Gpu>> {
    // SAFETY: only asks whether the library can be opened.
    if !unsafe { sys::is_culib_present() } {
        return Ok(Vec::new());
    }
    let failed = |error: DriverError| Error::Cuda(format!("the driver failed: {error:?}"));
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    }
    let count = result::device::get_count().map_err(failed)?;
    (0..count).map(|ordinal| describe(ordinal).map_err(failed)).collect()
}

fn describe(ordinal: i32) -> std::result::Result<Gpu, DriverError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = result::device::get(ordinal)?;
    // SAFETY: `device` is a handle the driver has just given.
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

/// Cannot be constructed until operations are ported.
pub(crate) enum Cuda {}

impl Cuda {
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        let found = probe()?;
        let problem = match found.iter().find(|gpu| gpu.ordinal == ordinal) {
            Some(gpu) => {
                format!("device {ordinal} ({}) is there, but the operations are not ported to CUDA yet", gpu.name)
            }
            None => format!("device {ordinal} is not there: the driver reports {} devices", found.len()),
        };
        Err(Error::Cuda(problem + "; use the cpu"))
    }

    pub(crate) fn name(&self) -> &'static str {
        match *self {}
    }

    pub(crate) fn refuse<T>(&self, _op: &'static str) -> Result<T> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_needs_no_driver() {
        let found = probe().unwrap();
        if found.is_empty() {
            println!("skipped: no CUDA device to describe");
        }
        assert!(found.iter().enumerate().all(|(index, gpu)| gpu.ordinal == index && gpu.memory_bytes > 0));
    }
}
