//! NCCL, the library that carries numbers between GPUs: opened when a group of them is asked for, and asked to gather only.
//!
//! Six functions of its C interface (`nccl.h`, unchanged since version 2.4). The library is no part of the driver and comes
//! with neither this program nor most systems, so nothing is linked and its absence is said with what to install.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;

use crate::error::{Error, Result};

/// Names the library's file where it lies outside of the system's folders.
const VARIABLE: &str = "LIFELONG_NCCL";
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// `ncclFloat32`.
const FLOAT32: c_int = 7;

type Communicator = *mut c_void;

/// The library and what we call of it. It stays open.
struct Nccl {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    init_all: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Communicator, *mut c_void) -> c_int,
    abort: unsafe extern "C" fn(Communicator) -> c_int,
    destroy: unsafe extern "C" fn(Communicator) -> c_int,
    _library: Library,
}

impl Nccl {
    fn open() -> std::result::Result<Self, String> {
        let named = std::env::var_os(VARIABLE);
        let names: Vec<OsString> = match &named {
            Some(path) => vec![path.clone()],
            None => NAMES.map(OsString::from).to_vec(),
        };
        // SAFETY: NCCL runs nothing but its own constructors when it is opened.
        let open = |name: &OsString| unsafe { Library::new(name) };
        let mut outcomes = names.iter().map(open);
        let library = match outcomes.find_map(std::result::Result::ok) {
            Some(library) => library,
            None => {
                let found = match &named {
                    Some(path) => format!("{VARIABLE} names {}, which is no library that opens", path.display()),
                    None => format!("{} is not found", NAMES[0]),
                };
                let mend = format!(
                    "install it for CUDA 13 (the system's package libnccl2, or `pip install nvidia-nccl-cu13` and {VARIABLE}=\
                     …/nvidia/nccl/lib/libnccl.so.2)"
                );
                return Err(format!("NCCL, which carries numbers between GPUs, is not there: {found}; {mend}"));
            }
        };
        /// A function of the library by its name.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field has the function's type in `nccl.h`, and the library stays open as long as it.
                *unsafe { library.get($name) }
                    .map_err(|_| format!("NCCL has no {}: a version before 2.4", $name.escape_ascii()))?
            };
        }
        Ok(Self {
            version: function!(b"ncclGetVersion"),
            error_string: function!(b"ncclGetErrorString"),
            init_all: function!(b"ncclCommInitAll"),
            all_gather: function!(b"ncclAllGather"),
            abort: function!(b"ncclCommAbort"),
            destroy: function!(b"ncclCommDestroy"),
            _library: library,
        })
    }

    fn check(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a text that lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Err(Error::Cuda(format!("{what}: NCCL failed: {}", text.to_string_lossy())))
    }
}

/// The library, opened once.
fn library() -> std::result::Result<&'static Nccl, String> {
    static LIBRARY: OnceLock<std::result::Result<Nccl, String>> = OnceLock::new();
    LIBRARY.get_or_init(Nccl::open).as_ref().map_err(Clone::clone)
}

/// The version of NCCL that is found, as its makers write it.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn version() -> std::result::Result<String, String> {
    let nccl = library()?;
    let mut number = 0;
    // SAFETY: writes one number.
    nccl.check("asking for the version", unsafe { (nccl.version)(&mut number) }).map_err(|error| error.to_string())?;
    Ok(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

/// The ways between the GPUs of a group.
pub(crate) struct Links {
    nccl: &'static Nccl,
    /// By rank.
    communicators: Vec<Communicator>,
    is_cut: AtomicBool,
}

// SAFETY: a communicator is used by the thread of its rank alone, but for aborting, which any thread may.
unsafe impl Send for Links {}
// SAFETY: as above.
unsafe impl Sync for Links {}

impl Links {
    /// Between the GPUs of these numbers, in order of rank.
    ///
    /// # Errors
    /// [`Error::Cuda`] without NCCL, with what to install, and when it finds no way.
    pub(super) fn between(ordinals: &[usize]) -> Result<Self> {
        let nccl = library().map_err(Error::Cuda)?;
        let devices: Vec<c_int> = ordinals.iter().map(|ordinal| *ordinal as c_int).collect();
        let mut communicators = vec![ptr::null_mut(); devices.len()];
        // SAFETY: as many of both as is said.
        let code = unsafe { (nccl.init_all)(communicators.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()) };
        nccl.check("connecting GPUs", code)?;
        Ok(Self { nccl, communicators, is_cut: AtomicBool::new(false) })
    }

    /// Puts into the stream of a rank that the `count` values of every rank come to stand at their place of `parts`
    /// `[ranks, count]`, where those of the rank itself are.
    ///
    /// # Safety
    /// `parts` is memory of the rank's GPU, whose context the thread has entered, and `stream` is of it.
    pub(super) unsafe fn gather(&self, rank: usize, parts: u64, count: usize, stream: u64) -> Result<()> {
        if self.is_cut.load(Ordering::Acquire) {
            return Err(Error::Cuda("a GPU of the group has failed; start the program again".into()));
        }
        let own = parts + (rank * count * size_of::<f32>()) as u64;
        // SAFETY: the caller's promise; in place, as `nccl.h` allows it.
        let code = unsafe {
            (self.nccl.all_gather)(
                own as *const c_void,
                parts as *mut c_void,
                count,
                FLOAT32,
                self.communicators[rank],
                stream as *mut c_void,
            )
        };
        self.nccl.check("gathering from other GPUs", code)
    }

    /// Ends what is on its way, for good: a GPU that waits for one that has failed goes on.
    pub(crate) fn cut(&self) {
        if !self.is_cut.swap(true, Ordering::AcqRel) {
            for communicator in &self.communicators {
                // SAFETY: aborted once, and not used or destroyed afterwards. What fails here is gone already.
                let _ = unsafe { (self.nccl.abort)(*communicator) };
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if !*self.is_cut.get_mut() {
            for communicator in &self.communicators {
                // SAFETY: nobody is left who uses it. What fails here is gone already.
                let _ = unsafe { (self.nccl.destroy)(*communicator) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `LIFELONG_NCCL` naming a library, or one installed: opens it and finds every function.
    #[test]
    fn nccl_is_opened_or_missing_with_what_to_install() {
        match version() {
            Ok(version) => {
                assert!(version.starts_with("2."), "{version}");
                println!("NCCL {version}");
                // Without a GPU it says so, in its own words, through our error.
                if super::super::survey().gpus.is_empty() {
                    let error = Links::between(&[0, 1]).map(|_| ()).unwrap_err().to_string();
                    assert!(error.contains("connecting GPUs: NCCL failed: "), "{error}");
                }
            }
            Err(problem) => {
                assert!(problem.contains("libnccl2") && problem.contains("nvidia-nccl-cu13"), "{problem}");
                println!("skipped: {problem}");
            }
        }
    }
}
