//! The architectures that run through candle, in a build without the cargo feature `candle`: same signature, one reason.

use lifelong_kernels::Device;

use crate::architecture::Decoder;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};

/// As in the other build.
pub const IS_BUILT: bool = false;
pub const PROGRAM: &str = "candle";

/// Refuses the architecture.
///
/// # Errors
/// Always [`Error::Candle`].
pub fn load(family: &'static str, checkpoint: &Checkpoint, _: &Device) -> Result<Box<dyn Decoder>> {
    let reason = format!("`{family}` runs only in a build with the cargo feature `candle`, which this one has not");
    Err(Error::Candle { path: checkpoint.path().to_path_buf(), reason })
}
