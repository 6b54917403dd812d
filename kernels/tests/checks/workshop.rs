//! Compiles kernels beside the program's own and puts them before these.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

// `kernels/cuda/emulator/emulator.cpp` says what they do.
unsafe extern "C" {
    fn emulate_overlay(path: *const c_char, message: *mut c_char, message_bytes: usize) -> c_int;
    fn emulate_launch(
        kernel: *const c_char,
        grid: *const u32,
        block: *const u32,
        shared_bytes: usize,
        arguments: *mut *mut c_void,
        message: *mut c_char,
        message_bytes: usize,
    ) -> c_int;
    fn emulate_thread_order(seed: u64);
}

/// What kernels can be watched by while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitiser {
    /// Memory that is read or written outside of what was allocated.
    Address,
    /// Memory that two threads touch without a barrier between them, one of them writing.
    Thread,
}

impl Sanitiser {
    pub fn name(self) -> &'static str {
        match self {
            Sanitiser::Address => "address",
            Sanitiser::Thread => "thread",
        }
    }

    /// What the emulator is told of it.
    fn define(self) -> &'static str {
        match self {
            Sanitiser::Address => "-DLIFELONG_ASAN",
            Sanitiser::Thread => "-DLIFELONG_TSAN",
        }
    }

    /// Its library, which a program that does not have it must be started with.
    pub fn library(self) -> PathBuf {
        let file = if self == Sanitiser::Address { "libasan.so" } else { "libtsan.so" };
        let found = Command::new(compiler()).arg(format!("-print-file-name={file}")).output().unwrap();
        PathBuf::from(String::from_utf8(found.stdout).unwrap().trim())
    }
}

/// The compiler that has built the emulator.
fn compiler() -> std::ffi::OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// A folder with the compiled emulator. There is one emulator in a process: one test at a time may use this.
pub struct Workshop {
    folder: PathBuf,
    sources: PathBuf,
    emulator: PathBuf,
    sanitiser: Option<Sanitiser>,
}

impl Workshop {
    pub fn open(name: &str) -> Self {
        Self::with(name, None)
    }

    /// Kernels are watched, the emulator itself is not.
    pub fn with(name: &str, sanitiser: Option<Sanitiser>) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let workshop = Self { emulator: folder.join("emulator.o"), folder, sources, sanitiser };
        let source = workshop.sources.join("emulator/emulator.cpp");
        let define = sanitiser.map_or("-DLIFELONG_UNWATCHED", Sanitiser::define);
        let arguments = ["-c".as_ref(), define.as_ref(), source.as_ref(), "-o".as_ref(), workshop.emulator.as_ref()];
        workshop.compile(&arguments);
        workshop
    }

    /// A file of the program's kernels.
    pub fn source(&self, file: &str) -> String {
        std::fs::read_to_string(self.sources.join(file)).unwrap()
    }

    /// A library of the kernels in a text.
    pub fn library(&self, name: &str, text: &str) -> PathBuf {
        let (source, library) = (self.folder.join(name), self.folder.join(format!("{name}.so")));
        std::fs::write(&source, text).unwrap();
        let watched = self.sanitiser.map_or("-g0".into(), |sanitiser| format!("-fsanitize={}", sanitiser.name()));
        let flags = ["-shared", "-Wl,-Bsymbolic", "-g1", &watched, "-xc++"].map(OsStr::new);
        let files = [source.as_ref(), "-xnone".as_ref(), self.emulator.as_ref(), "-o".as_ref(), library.as_ref()];
        self.compile(&[&flags[..], &files[..]].concat());
        library
    }

    fn compile(&self, arguments: &[&OsStr]) {
        let done = Command::new(compiler())
            .args([
                "-std=c++20",
                "-O1",
                "-fPIC",
                "-w",
                "-ffp-contract=off",
                "-fvisibility=hidden",
                "-DLIFELONG_EMULATED",
            ])
            .arg(concat!("-isystem", env!("LIFELONG_EMULATOR_HEADERS")))
            .arg("-I")
            .arg(&self.sources)
            .args(arguments)
            .output()
            .expect("the compiler that built the emulator");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Puts a library before the kernels, or none.
pub fn overlay(library: Option<&Path>) {
    let path = library.map(|path| CString::new(path.to_str().unwrap()).unwrap());
    let mut message = [0 as c_char; 512];
    let pointer = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    // SAFETY: a terminated path or null; the message is terminated within its length; no kernel runs meanwhile.
    let failed = unsafe { emulate_overlay(pointer, message.as_mut_ptr(), message.len()) };
    // SAFETY: as above.
    assert_eq!(failed, 0, "{}", unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy());
}

/// Runs a kernel that takes a pointer to these values.
pub fn launch(
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: usize,
    order: u64,
    values: &mut [f32],
) -> Result<(), String> {
    let kernel = CString::new(kernel).unwrap();
    let mut message = [0 as c_char; 512];
    let mut pointer = values.as_mut_ptr();
    let mut arguments = [std::ptr::from_mut(&mut pointer).cast::<c_void>()];
    // SAFETY: the kernel takes one pointer, and the caller gives it as many values as it touches.
    let failed = unsafe {
        emulate_thread_order(order);
        emulate_launch(
            kernel.as_ptr(),
            grid.as_ptr(),
            block.as_ptr(),
            shared_bytes,
            arguments.as_mut_ptr(),
            message.as_mut_ptr(),
            message.len(),
        )
    };
    // SAFETY: terminated within its length.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
    if failed == 0 { Ok(()) } else { Err(text) }
}
