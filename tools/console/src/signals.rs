//! SIGINT, SIGTERM and SIGHUP: the reaction to Ctrl-C, `kill`, the time limit of a batch system, and a terminal that is closed.
//!
//! [`run`](crate::run) catches them for every program. The effect of the first signal depends on the program:
//!
//! | the program | first signal |
//! |---|---|
//! | calls neither | ends at once, because it only reads |
//! | calls [`ends_at_once`] or [`leaves_folder`] | ends at once, and prints what is left on disk and how to continue |
//! | calls [`stops_by_itself`] | [`Bars`](crate::Bars) ask the running operation to stop; it cleans up and returns an error |
//!
//! A second signal always ends the program at once, after what [`at_second`] was given. The exit code is 128 plus the signal's number, as a shell reports it:
//! 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
//!
//! SIGXFSZ ends no program: a write beyond `ulimit -f` is an error. Programs that this one starts get the signal as usual.
//!
//! A thread waits for the signals, so no code runs inside a signal handler. A signal that is ignored when the program starts
//! (`nohup`, background jobs of a shell) stays ignored.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
    low_level,
};

use crate::screen;

/// The number of the first signal; 0 before it.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Whether the line about the first signal is printed. A program that stops quickly waits for it at its end.
static TOLD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// The longest time to wait for it: stderr may be a pipe that nobody reads.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

static ON_SIGNAL: Mutex<OnSignal> = Mutex::new(OnSignal::End(None));

/// What the second signal does before it ends the program.
static AT_SECOND: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// The effect of the first signal.
enum OnSignal {
    /// Ends the program and prints the text that the function returns.
    End(Option<Box<dyn Fn() -> Option<String> + Send>>),
    /// Prints a line. The program then ends by itself.
    Stop(String),
}

/// From now on, the first signal ends the program at once and prints the text that `left` returns: what remains on disk, and
/// how to continue. `None` means that nothing remains.
pub fn ends_at_once(left: impl Fn() -> Option<String> + Send + 'static) {
    set(OnSignal::End(Some(Box::new(left))));
}

/// Like [`ends_at_once`], for a program that leaves an unfinished folder. `remedy` says how to continue.
pub fn leaves_folder(folder: PathBuf, remedy: &'static str) {
    ends_at_once(move || {
        let is_left = folder.exists();
        is_left.then(|| format!("what is finished is kept in {}: {remedy}", folder.display()))
    });
}

/// From now on, the first signal only makes [`stop_requested`] true and prints `line`, which says what the program does before
/// it ends. The program must then end soon by itself.
pub fn stops_by_itself(line: impl Into<String>) {
    set(OnSignal::Stop(line.into()));
}

/// Calls `end` when a second signal ends the program, to end other processes with it.
pub fn at_second(end: impl Fn() + Send + 'static) {
    *AT_SECOND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(end));
}

/// Takes the signal of another process, which has stopped the work of this one, for a signal to this one: the exit code says so.
pub fn stopped_elsewhere(signal: i32) {
    if RECEIVED.compare_exchange(0, signal, SeqCst, SeqCst).is_ok() {
        set_told();
    }
}

/// The number of the signal that has asked the program to stop; none before it.
pub fn received() -> Option<i32> {
    match RECEIVED.load(SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// Whether a signal has asked the program to stop.
pub fn stop_requested() -> bool {
    RECEIVED.load(SeqCst) != 0
}

fn set(on_signal: OnSignal) {
    *ON_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner) = on_signal;
}

/// The exit code after a signal, when the line about it is printed; `None` without a signal.
pub(crate) fn exit_code() -> Option<u8> {
    let signal = received()?;
    let (told, changed) = &TOLD;
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = changed.wait_timeout_while(told, TOLD_WITHIN, |told| !*told);
    Some(code_of(signal) as u8)
}

fn set_told() {
    let (told, changed) = &TOLD;
    *told.lock().unwrap_or_else(PoisonError::into_inner) = true;
    changed.notify_all();
}

fn code_of(signal: i32) -> i32 {
    128 + signal
}

/// Starts the thread that waits for signals.
pub(crate) fn catch() {
    // Nobody asks whether it came: the write that caused it fails. A handler, unlike an ignored signal, does not pass to other programs.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caught: Vec<i32> =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(&status, signal)).collect();
    let waiting = Signals::new(caught)
        .and_then(|signals| thread::Builder::new().name("signals".into()).spawn(move || wait(signals)));
    // Without the thread, signals have their default effect.
    if let Err(error) = waiting {
        tracing::warn!("signals end the program at once: {error}");
    }
}

fn wait(mut signals: Signals) {
    for signal in signals.forever() {
        if RECEIVED.swap(signal, SeqCst) != 0 {
            if let Some(end) = &*AT_SECOND.lock().unwrap_or_else(PoisonError::into_inner) {
                end();
            }
            low_level::exit(code_of(signal));
        }
        // The lock is released before printing, because a thread that is printing may wait for it.
        let said = match &*ON_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner) {
            OnSignal::Stop(line) => Err(line.clone()),
            OnSignal::End(left) => Ok(left.as_ref().and_then(|left| left())),
        };
        match said {
            Err(line) => {
                screen::eprint_line(&format!("interrupted: {line} (a second signal ends at once)"));
                set_told();
            }
            Ok(left) => {
                screen::clear();
                screen::eprint_line(&format!(
                    "interrupted{}",
                    left.map_or_else(String::new, |left| format!(": {left}"))
                ));
                low_level::exit(code_of(signal));
            }
        }
    }
}

/// Whether `/proc/self/status` says that a signal is ignored.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_at_the_start_is_recognized() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000000000\n";
        assert!(is_ignored(status, SIGINT));
        assert!(!is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGINT));
    }
}
