//! The clock and the source of chance of a process, in the hands of the simulation.
//!
//! A program that links this crate asks these functions instead of the C library's, and so does
//! everything in it: `Instant::now`, `SystemTime::now`, `jiff::Timestamp::now`, the seeds of hash maps and of
//! back-offs. Before [`begin`] they answer as the kernel does. madsim and turmoil do the same.
#![allow(unsafe_code, reason = "the C library's functions are replaced")]

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The virtual time since [`begin`] in nanoseconds, plus one; 0 before.
static NOW: AtomicU64 = AtomicU64::new(0);
/// The state of the source of chance.
static CHANCE: AtomicU64 = AtomicU64::new(0);
/// How many seconds the wall clock is ahead of the cluster's.
static AHEAD: AtomicI64 = AtomicI64::new(0);
/// When virtual time begins, in seconds of Unix time: 2026-01-01.
const BEGIN: u64 = 1_767_225_600;

/// Virtual time begins, and chance is decided by this seed.
pub fn begin(seed: u64) {
    CHANCE.store(seed, Ordering::Relaxed);
    NOW.store(1, Ordering::Relaxed);
}

/// The virtual time is this long after [`begin`]. It never goes back.
pub fn set(since: Duration) {
    let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX - 1);
    NOW.fetch_max(nanos + 1, Ordering::Relaxed);
}

/// From now on the wall clock of the program under test is this many seconds ahead of the cluster's, or
/// behind it where the number is negative. Its monotonic clock runs on.
pub fn set_ahead(seconds: i64) {
    AHEAD.store(seconds, Ordering::Relaxed);
}

/// The wall clock of the cluster: that of every process but the program under test.
pub fn cluster_time() -> SystemTime {
    match NOW.load(Ordering::Relaxed) {
        0 => SystemTime::now(),
        now => SystemTime::UNIX_EPOCH + Duration::from_secs(BEGIN) + Duration::from_nanos(now - 1),
    }
}

/// The next number of the sequence (SplitMix64, Steele et al., 2014).
fn next() -> u64 {
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let state = CHANCE.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Replaces the C library's `clock_gettime`.
///
/// # Safety
/// As in C: `time` points to a `timespec` or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    let now = NOW.load(Ordering::Relaxed);
    if now == 0 || time.is_null() {
        // SAFETY: the kernel checks the pointer itself.
        let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return libc::c_int::try_from(result).unwrap_or(-1);
    }
    // A monotonic clock that began long ago, as that of a machine that runs.
    let since = now - 1;
    let (seconds, nanos) = (BEGIN + since / 1_000_000_000, since % 1_000_000_000);
    let ahead = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => AHEAD.load(Ordering::Relaxed),
        _ => 0,
    };
    let seconds = seconds.saturating_add_signed(ahead);
    // SAFETY: it is not null, and the caller promises that it points to a `timespec`.
    unsafe {
        (*time).tv_sec = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
        (*time).tv_nsec = libc::c_long::try_from(nanos).unwrap_or(0);
    }
    0
}

/// Replaces the C library's `getrandom`.
///
/// # Safety
/// As in C: `buffer` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    if NOW.load(Ordering::Relaxed) == 0 {
        // SAFETY: the kernel checks the pointer itself.
        let result = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(result).unwrap_or(-1);
    }
    // SAFETY: the caller promises that `buffer` points to `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]);
    }
    libc::ssize_t::try_from(length).unwrap_or(-1)
}

/// After how many seconds of the kernel's clock a copy that does not end is ended, however little of the
/// processor's time it had.
const LONGEST_WAIT_SECONDS: u32 = 3600;

/// How a copy of this process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with the exit code of success.
    Well,
    /// It took too long and was ended.
    Late,
    /// Otherwise.
    Badly,
}

/// Makes a copy of this process that does `work` and ends, and waits for its end. The copy has what this process
/// has prepared, and nothing that other copies did. It is ended after this many seconds of the processor's time:
/// on a machine that has other work, the clock says nothing about whether it hangs. One that waits for something
/// that never comes uses no such time, and is ended after [`LONGEST_WAIT_SECONDS`].
///
/// # Errors
/// This process has more than one thread, and a copy would lack all but one; or the kernel cannot copy it.
pub fn in_a_copy(seconds: u32, work: impl FnOnce() -> std::process::ExitCode) -> io::Result<End> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads cannot be copied"));
    }
    // SAFETY: there is one thread, so the copy finds no lock that another one held.
    let copy = unsafe { libc::fork() };
    match copy {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let limit = libc::rlimit {
                rlim_cur: seconds.into(),
                rlim_max: libc::rlim_t::from(seconds) + 1,
            };
            // SAFETY: `limit` lives as long as the call; the default of both signals is the end of the process.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CPU, &raw const limit);
                libc::alarm(LONGEST_WAIT_SECONDS);
            }
            let well = work() == std::process::ExitCode::SUCCESS;
            std::process::exit(i32::from(!well))
        }
        copy => {
            let mut status = 0;
            // SAFETY: `status` is a place for a number, and the copy is this process's child.
            while unsafe { libc::waitpid(copy, &raw mut status, 0) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(match status {
                0 => End::Well,
                status
                    if libc::WIFSIGNALED(status)
                        && matches!(libc::WTERMSIG(status), libc::SIGALRM | libc::SIGXCPU) =>
                {
                    End::Late
                }
                _ => End::Badly,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_process_with_threads_is_not_copied() {
        let thread = std::thread::spawn(std::thread::park);
        let copied = in_a_copy(1, || std::process::ExitCode::SUCCESS);
        assert!(copied.is_err());
        thread.thread().unpark();
        thread.join().unwrap();
    }

    #[test]
    fn only_the_wall_clock_of_the_program_under_test_is_ahead() {
        begin(1);
        let (start, cluster) = (Instant::now(), cluster_time());
        assert_eq!(SystemTime::now(), cluster);
        set_ahead(-90);
        set(Duration::from_secs(5));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert_eq!(cluster_time(), cluster + Duration::from_secs(5));
        let behind = Duration::from_secs(90);
        assert_eq!(SystemTime::now() + behind, cluster_time());
    }
}
