//! Watches the decoding of an input: panics, memory, time.
//!
//! A panic is caught. The global allocator counts memory. The kernel limits it too, because an allocation of terabytes
//! ends the process. A thread ends the process if an input takes too long. Each input is written to a file before it
//! runs, so the watching process finds the input that ended the other one.

use std::{
    cell::RefCell,
    fs::File,
    os::unix::fs::FileExt,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process,
    sync::{Arc, Mutex, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use peak_alloc::PeakAlloc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Input, Target, scratch::Scratch};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Exit code of a process whose input took too long.
pub const HUNG: i32 = 70;

/// Time limit of an input. A slow machine under load runs the slowest input in a hundredth of it.
pub const SECONDS_MAX: u64 = 20;

/// Address space that a process may add to that at its start.
const ADDRESS_SPACE: u64 = 4 << 30;

/// The result of an input.
pub enum Ran {
    /// It kept all promises. The text is the outcome.
    Kept(String),
    /// It broke a promise. `place` distinguishes faults.
    Broke {
        /// The place in the code, or the promise.
        place: String,
        /// The message.
        message: String,
    },
}

/// Runs inputs and watches them.
pub struct Watch {
    scratch: Scratch,
    current: Option<File>,
    /// Start of the current input.
    started: Arc<Mutex<Option<Instant>>>,
}

/// Memory is counted for the whole process, so inputs run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static STATE: RefCell<State> = const { RefCell::new(State::Elsewhere) };
}

/// The state of a thread.
enum State {
    /// Outside of targets. A panic is printed as usual.
    Elsewhere,
    /// In a target.
    Inside,
    /// In a target that panicked: the place and the message.
    Panicked(String, String),
}

impl Watch {
    /// Watches this process without limits, so it can be a test.
    pub fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                // Nobody wants to read of panics that are caught and reported.
                STATE.with_borrow_mut(|state| match state {
                    State::Elsewhere => before(info),
                    State::Inside | State::Panicked(..) => {
                        let place = info.location().map(ToString::to_string).unwrap_or_default();
                        let message = info.payload_as_str().unwrap_or("a panic without a message");
                        *state = State::Panicked(place, message.to_owned());
                    }
                });
            }));
        });
        Self {
            scratch: Scratch::new(),
            current: None,
            started: Arc::default(),
        }
    }

    /// Limits memory and time of this process, and writes each input to `current` before it runs.
    pub fn with_limits(current: &Path) -> Result<Self> {
        let maximum = getrlimit(Resource::As).maximum;
        let limit = Rlimit {
            current: Some(address_space_bytes()? + ADDRESS_SPACE),
            maximum,
        };
        setrlimit(Resource::As, limit).context("cannot limit memory")?;
        let watch = Self {
            current: Some(File::create(current).with_context(|| format!("cannot create {}", current.display()))?),
            ..Self::new()
        };
        let started = watch.started.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(250));
                let started = *started.lock().unwrap_or_else(PoisonError::into_inner);
                if started.is_some_and(|started| started.elapsed() > Duration::from_secs(SECONDS_MAX)) {
                    process::exit(HUNG);
                }
            }
        });
        Ok(watch)
    }

    /// Runs an input.
    pub fn run(&self, target: &Target, bytes: &[u8]) -> Ran {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.current {
            let written = file
                .set_len(bytes.len() as u64)
                .and_then(|()| file.write_all_at(bytes, 0));
            written.expect("the current input can be left in its file");
        }
        self.set_started(Some(Instant::now()));
        STATE.replace(State::Inside);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let input = Input {
            bytes,
            scratch: &self.scratch,
        };
        let ran = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let taken = MEMORY.peak_usage().saturating_sub(before);
        let state = STATE.replace(State::Elsewhere);
        self.set_started(None);
        let outcome = match (ran, state) {
            (Ok(outcome), _) => outcome,
            (Err(_), State::Panicked(place, message)) => return Ran::Broke { place, message },
            (Err(_), State::Inside | State::Elsewhere) => {
                return Ran::Broke {
                    place: "a thread of its own".into(),
                    message: "panicked".into(),
                };
            }
        };
        let most = target.memory_max(bytes.len());
        if taken > most {
            return Ran::Broke {
                place: "memory".into(),
                message: format!(
                    "allocated {taken} bytes for {} of input; {most} are justified",
                    bytes.len()
                ),
            };
        }
        Ran::Kept(outcome)
    }

    fn set_started(&self, started: Option<Instant>) {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = started;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of address space that this process has mapped.
fn address_space_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let kibibytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse().ok())
        .context("/proc/self/status has no VmSize")?;
    Ok(kibibytes << 10)
}
