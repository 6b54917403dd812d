//! One operation on the device: where its operands are, its launches, and what comes back.
//!
//! Operations take slices. One inside of memory that both sides address is passed as it is, and the call returns before
//! the device is done. Any other is brought over: inputs are copied to the device, outputs copied back, and the call waits.
//! So an operation is right with whatever it is given, and fast with [`Values`](crate::Values).
//!
//! What a step says to every layer (positions, block tables, segments) is remembered by name and brought over once.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytemuck::Pod;

use super::Cuda;
use super::memory::{Buffer, Memory};
use super::runner::{Argument, Launch};
use crate::error::{Error, Result};
use crate::group::Member;

/// Operands begin on borders that every vector load of a kernel is good with.
const BORDER: usize = 256;
/// The least that is taken from the device at a time.
const SMALLEST_AREA: usize = 1 << 20;
/// What stands in gaps and in outputs before they are written: all ones are no number in every float format.
const POISON: u8 = 0xff;

/// Device memory that operations put operands into, one operation at a time.
#[derive(Default)]
pub(crate) struct Stage {
    areas: Vec<Buffer>,
    /// Bytes given out of the last area.
    used: usize,
    remembered: HashMap<&'static str, Remembered>,
}

/// What was last brought over under a name.
struct Remembered {
    bytes: Vec<u8>,
    buffer: Buffer,
}

impl Stage {
    /// Gives everything back. What needed several areas gets one that holds all the next time.
    fn clear(&mut self, memory: &Arc<Memory>) -> Result<()> {
        self.used = 0;
        if self.areas.len() > 1 {
            let bytes = self.areas.iter().map(Buffer::bytes).sum();
            memory.runner.synchronize()?;
            self.areas.clear();
            self.areas.push(Buffer::new(memory, bytes)?);
        }
        Ok(())
    }

    fn take(&mut self, memory: &Arc<Memory>, bytes: usize) -> Result<u64> {
        let bytes = bytes.next_multiple_of(BORDER);
        if self.areas.last().is_none_or(|area| self.used + bytes > area.bytes()) {
            self.areas.push(Buffer::new(memory, bytes.max(SMALLEST_AREA))?);
            self.used = 0;
        }
        let area = self.areas.last().expect("one was just made");
        let address = area.address() + self.used as u64;
        self.used += bytes;
        Ok(address)
    }
}

/// An operation being prepared and run.
pub(crate) struct Operation<'a> {
    op: &'static str,
    cuda: &'a Cuda,
    stage: MutexGuard<'a, Stage>,
    /// Host memory that gets what stands at an address.
    outputs: Vec<(&'a mut [u8], u64)>,
    /// Gaps of [`BORDER`] bytes that nothing may have written to.
    gaps: Vec<u64>,
}

impl<'a> Operation<'a> {
    pub(crate) fn begin(cuda: &'a Cuda, op: &'static str) -> Result<Self> {
        // An operation that panicked left only memory behind, which the next one overwrites.
        let mut stage = cuda.stage.lock().unwrap_or_else(PoisonError::into_inner);
        stage.clear(&cuda.memory)?;
        Ok(Self { op, cuda, stage, outputs: Vec::new(), gaps: Vec::new() })
    }

    /// Where the device reads these values.
    pub(crate) fn input<T: Pod>(&mut self, values: &[T]) -> Result<u64> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        match self.managed(bytes) {
            Some(address) => Ok(address),
            None => self.bring(bytes),
        }
    }

    /// As [`Operation::input`], for values that many operations of a step are given: brought over when they differ from
    /// what came under this name before.
    pub(crate) fn step_input<T: Pod>(&mut self, name: &'static str, values: &[T]) -> Result<u64> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if bytes.is_empty() {
            return Ok(0);
        }
        let memory = &self.cuda.memory;
        let stage = &mut *self.stage;
        let fits = stage.remembered.get(name).is_some_and(|known| known.buffer.bytes() >= bytes.len());
        if !fits {
            let buffer = Buffer::new(memory, bytes.len().next_power_of_two().max(BORDER))?;
            // Kernels may still read what is replaced here.
            memory.runner.synchronize()?;
            stage.remembered.insert(name, Remembered { bytes: Vec::new(), buffer });
        }
        let known = stage.remembered.get_mut(name).expect("it was just made where it was not there");
        if known.bytes != bytes {
            // SAFETY: the buffer has room for them.
            unsafe { memory.runner.copy_in(known.buffer.address(), bytes)? };
            known.bytes.clear();
            known.bytes.extend_from_slice(bytes);
        }
        Ok(known.buffer.address())
    }

    /// Where the device writes these values; it writes all of them.
    pub(crate) fn output<T: Pod>(&mut self, values: &'a mut [T]) -> Result<u64> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        if let Some(address) = self.managed(bytes) {
            return Ok(address);
        }
        let address = self.scratch(bytes.len())?;
        if !bytes.is_empty() {
            self.outputs.push((bytes, address));
        }
        Ok(address)
    }

    /// Where the device reads and writes these values.
    pub(crate) fn in_out<T: Pod>(&mut self, values: &'a mut [T]) -> Result<u64> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        if let Some(address) = self.managed(bytes) {
            return Ok(address);
        }
        let address = self.bring(bytes)?;
        if !bytes.is_empty() {
            self.outputs.push((bytes, address));
        }
        Ok(address)
    }

    /// Working memory of this operation; what it holds is undefined.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if !self.cuda.memory.runner.keeps_guards() {
            return self.stage.take(&self.cuda.memory, bytes);
        }
        // The operand, filled up to a border and a gap behind it.
        let whole = bytes.next_multiple_of(BORDER);
        let address = self.stage.take(&self.cuda.memory, whole + BORDER)?;
        // SAFETY: the range was just given out.
        unsafe { self.cuda.memory.runner.fill(address, POISON, whole + BORDER)? };
        self.gaps.push(address + whole as u64);
        Ok(address)
    }

    /// Starts a kernel; a grid without blocks starts none.
    pub(crate) fn launch(
        &mut self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        shared_bytes: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let launch = Launch { kernel, grid, block: [threads, 1, 1], shared_bytes };
        // SAFETY: launchers pass what the kernel's signature says, and operands that `ops` has checked the extents of.
        unsafe { self.cuda.memory.runner.launch(&launch, arguments) }
    }

    /// Brings the `count` values of every member of a group to their place of `parts` `[ranks, count]`; its own are there.
    pub(crate) fn gather(&mut self, member: &Member, parts: u64, count: usize) -> Result<()> {
        let (runner, rank) = (&self.cuda.memory.runner, member.rank().number);
        if count == 0 {
            return Ok(());
        }
        if let Some(links) = member.links() {
            member.meet()?;
            // SAFETY: `scratch` has given out `parts`, and the runner has entered its context.
            let asked = runner.enqueue(&mut |stream| unsafe { links.gather(rank, parts, count, stream) });
            if asked.is_err() {
                // The others have asked already, and would wait on their GPUs.
                member.cut_links();
            }
            asked?;
            return member.meet();
        }
        let place = |rank: usize| parts + (rank * count * size_of::<f32>()) as u64;
        let mut own = vec![0f32; count];
        // SAFETY: a member's place of `parts`; waited for below.
        unsafe { runner.copy_out(bytemuck::cast_slice_mut(&mut own), place(rank))? };
        runner.synchronize()?;
        member.give(&own)?;
        member.read(|other, values| match (other == rank, values.len() == count) {
            (true, _) => Ok(()),
            (false, false) => {
                Err(Error::Group(format!("rank {other} gave {} values, not {count}: our bug", values.len())))
            }
            // SAFETY: a member's place of `parts`, as long.
            (false, true) => unsafe { runner.copy_in(place(other), bytemuck::cast_slice(values)) },
        })
    }

    /// Brings outputs back and waits for them; without any, the device may still be at work.
    pub(crate) fn finish(mut self) -> Result<()> {
        let runner = &self.cuda.memory.runner;
        for (bytes, address) in &mut self.outputs {
            // SAFETY: as long as what was given out at this address; waited for below.
            unsafe { runner.copy_out(bytes, *address)? };
        }
        if !self.outputs.is_empty() {
            runner.synchronize()?;
        }
        self.check_gaps()
    }

    fn check_gaps(&self) -> Result<()> {
        for gap in &self.gaps {
            let mut found = [0u8; BORDER];
            // SAFETY: the gap was given out with its operand.
            unsafe { self.cuda.memory.runner.copy_out(&mut found, *gap)? };
            self.cuda.memory.runner.synchronize()?;
            if found != [POISON; BORDER] {
                return Err(Error::Cuda(format!("{}: a kernel wrote behind one of its operands: our bug", self.op)));
            }
        }
        Ok(())
    }

    fn managed(&self, bytes: &[u8]) -> Option<u64> {
        let start = bytes.as_ptr() as u64;
        let range = start..start + bytes.len() as u64;
        (!bytes.is_empty() && self.cuda.memory.is_managed(&range)).then_some(start)
    }

    fn bring(&mut self, bytes: &[u8]) -> Result<u64> {
        let address = self.scratch(bytes.len())?;
        if !bytes.is_empty() {
            // SAFETY: `scratch` has given out as many bytes.
            unsafe { self.cuda.memory.runner.copy_in(address, bytes)? };
        }
        Ok(address)
    }
}

/// Blocks of `threads` that cover `count` items.
pub(crate) fn blocks(count: usize, threads: u32) -> [u32; 3] {
    [u32::try_from(count.div_ceil(threads as usize)).unwrap_or(u32::MAX), 1, 1]
}
