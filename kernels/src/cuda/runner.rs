//! Who runs kernels: the CUDA driver, or the emulator that runs the same sources on the host.

use std::ffi::c_void;

use crate::device::Launches;
use crate::error::{Error, Result};

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the device: the host reaches it through copies only.
    Device,
    /// At one address for both; it stays on the device while the host does not touch it.
    Managed,
}

/// A kernel and the threads it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub(crate) shared_bytes: usize,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    /// The bytes of its C type from the lowest on.
    Word(u64),
    /// The bytes of a struct, aligned as it is.
    Struct(&'a [u8]),
}

impl<'a> Argument<'a> {
    /// A struct that the kernel takes by value: of the same layout in C, filled up to its alignment.
    pub(crate) fn of<T: bytemuck::NoUninit>(value: &'a T) -> Self {
        Argument::Struct(bytemuck::bytes_of(value))
    }
}

impl From<u64> for Argument<'_> {
    /// A pointer, or an `unsigned long long`.
    fn from(value: u64) -> Self {
        Argument::Word(value)
    }
}

impl From<u32> for Argument<'_> {
    fn from(value: u32) -> Self {
        Argument::Word(u64::from(value))
    }
}

impl From<i32> for Argument<'_> {
    fn from(value: i32) -> Self {
        Argument::Word(u64::from(value as u32))
    }
}

impl From<f32> for Argument<'_> {
    fn from(value: f32) -> Self {
        Argument::Word(u64::from(value.to_bits()))
    }
}

/// The arguments of a kernel in the order of its signature, each of exactly the width that it has there.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &[$($crate::cuda::runner::Argument::from($value)),*] };
}
pub(crate) use arguments;

/// What a kernel launcher takes: a pointer to each argument. Nothing is written through them.
pub(crate) fn pointers(arguments: &[Argument<'_>]) -> Vec<*mut c_void> {
    let pointer = |argument: &Argument<'_>| match argument {
        Argument::Word(word) => std::ptr::from_ref(word).cast_mut().cast(),
        Argument::Struct(bytes) => bytes.as_ptr().cast_mut().cast(),
    };
    arguments.iter().map(pointer).collect()
}

/// A launch to be made later, with its own copy of what it is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    pub(crate) launch: Launch,
    arguments: Vec<Held>,
}

#[derive(Clone, Debug, PartialEq)]
enum Held {
    Word(u64),
    /// Aligned as any struct of numbers and pointers is; the bytes that count.
    Struct(Vec<u64>, usize),
}

impl Recorded {
    pub(crate) fn of(launch: &Launch, arguments: &[Argument<'_>]) -> Self {
        let hold = |argument: &Argument<'_>| match *argument {
            Argument::Word(word) => Held::Word(word),
            Argument::Struct(bytes) => {
                let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
                bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
                Held::Struct(words, bytes.len())
            }
        };
        Self { launch: *launch, arguments: arguments.iter().map(hold).collect() }
    }

    pub(crate) fn arguments(&self) -> Vec<Argument<'_>> {
        self.arguments.iter().map(Held::give).collect()
    }

    /// # Safety
    /// As of [`Runner::launch`].
    pub(crate) unsafe fn launch_on(&self, runner: &dyn Runner) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { runner.launch(&self.launch, &self.arguments()) }
    }
}

impl Held {
    fn give(&self) -> Argument<'_> {
        match self {
            Held::Word(word) => Argument::Word(*word),
            Held::Struct(words, length) => Argument::Struct(&bytemuck::cast_slice(words)[..*length]),
        }
    }
}

/// Launches that are started with one call, as often as one likes.
pub(crate) trait Repeated: Send {
    /// Puts another launch of the same kernel in the place of one. What is running is not touched by it.
    fn set(&mut self, index: usize, launch: &Recorded) -> Result<()>;

    /// Starts all, each behind the one before it.
    ///
    /// # Safety
    /// As of [`Runner::launch`], for each; `runner` is the one that it was made by.
    unsafe fn run(&self, runner: &dyn Runner) -> Result<()>;
}

/// One launch after the other, where a device knows nothing better.
struct OneByOne(Vec<Recorded>);

impl Repeated for OneByOne {
    fn set(&mut self, index: usize, launch: &Recorded) -> Result<()> {
        self.0[index] = launch.clone();
        Ok(())
    }

    unsafe fn run(&self, runner: &dyn Runner) -> Result<()> {
        // SAFETY: the caller's promise.
        self.0.iter().try_for_each(|recorded| unsafe { recorded.launch_on(runner) })
    }
}

/// A device with one queue: what is asked is done in order. Only [`Runner::synchronize`] waits.
pub(crate) trait Runner: Send + Sync {
    /// The kind of arithmetic units, for a run's manifest.
    fn name(&self) -> &str;

    /// The GPU's number in the driver's order; none of one that is emulated.
    fn ordinal(&self) -> Option<usize> {
        None
    }

    /// Lets a library put work into the queue: it is given the driver's stream.
    fn enqueue(&self, _work: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        Err(Error::Cuda(format!("{} has no stream of the driver: our bug", self.name())))
    }

    /// Memory on a border of 256 bytes; what it holds is undefined. `bytes` is above 0.
    fn allocate(&self, bytes: usize, place: Place) -> Result<u64>;

    /// # Safety
    /// The address came from `allocate` with this size and place, and nobody uses it any more.
    unsafe fn free(&self, address: u64, bytes: usize, place: Place);

    /// # Safety
    /// The range is allocated.
    unsafe fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()>;

    /// Returns once `from` may change.
    ///
    /// # Safety
    /// The range `to` is allocated.
    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()>;

    /// `to` holds the bytes after the next [`Runner::synchronize`].
    ///
    /// # Safety
    /// The range `from` is allocated; `to` lives and is not touched until then.
    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()>;

    /// # Safety
    /// The arguments are those of the kernel's signature, and it stays inside of what they point at.
    unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()>;

    /// Makes one thing of launches. Nothing is started.
    fn repeated(&self, launches: &[Recorded]) -> Result<Box<dyn Repeated>> {
        Ok(Box::new(OneByOne(launches.to_vec())))
    }

    /// Waits until everything that was asked is done.
    fn synchronize(&self) -> Result<()>;

    /// Bytes of device memory that are free, and all of them.
    fn memory(&self) -> Result<(usize, usize)>;

    /// How kernels have been started so far, by a runner that starts them in graphs.
    fn launches(&self) -> Launches {
        Launches::default()
    }

    /// Whether operands that are brought over keep a guarded gap between them, which a stray write is seen by.
    fn keeps_guards(&self) -> bool {
        false
    }
}
