//! Pipes, waiting and closing: the three things done with bare descriptors in the launcher's processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A pipe: the end to read from, the end to write to. Both close at `exec`.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into the array, which nothing else owns.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Which of two descriptors have something to read or were closed.
pub(super) struct Ready {
    pub first: bool,
    pub second: bool,
}

/// Waits until a descriptor can be read or was closed, or the time is up.
pub(super) fn poll(first: BorrowedFd<'_>, second: Option<BorrowedFd<'_>>, limit: Duration) -> Ready {
    let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    let mut entries = [entry(first.as_raw_fd()), entry(second.map_or(-1, |fd| fd.as_raw_fd()))];
    let milliseconds = i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: the array outlives the call and its length is given.
    let count = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, milliseconds) };
    let is_ready = |entry: &libc::pollfd| count > 0 && entry.revents != 0;
    Ready { first: is_ready(&entries[0]), second: is_ready(&entries[1]) }
}

/// Closes the descriptors of a range, both ends included; none of them may be owned.
pub(super) fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: the caller guarantees that no value of this process owns a descriptor of the range.
    let status = unsafe { libc::syscall(libc::SYS_close_range, first as u32, last as u32, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
