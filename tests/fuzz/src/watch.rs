//! What an input does to the process that decodes it: panics, memory, time.
//!
//! A panic is caught. Memory is counted by the global allocator, and limited by the kernel too, because an allocation of
//! terabytes ends the process. An input that takes too long is noticed by a thread, which ends the process as well. The
//! process that looks on then finds the input in a file, to which each is written before it is run.

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

/// The exit code of a process whose input took too long.
pub const HUNG: i32 = 70;

/// How long an input may take. A slow machine under load runs the slowest input in a hundredth of it.
pub const SECONDS_MAX: u64 = 20;

/// Address space that a process may have beyond what it has at the start.
const ADDRESS_SPACE: u64 = 4 << 30;

/// What an input did.
pub enum Ran {
    /// It kept its promises; a few words on what came of it.
    Kept(String),
    /// It broke one. `place` tells one fault from another.
    Broke {
        /// Where, or which promise.
        place: String,
        /// What it said.
        message: String,
    },
}

/// Runs inputs and watches over them.
pub struct Watch {
    scratch: Scratch,
    current: Option<File>,
    /// When the input that is running was started.
    started: Arc<Mutex<Option<Instant>>>,
}

/// Memory is counted for the whole process, so inputs are run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static STATE: RefCell<State> = const { RefCell::new(State::Elsewhere) };
}

/// Where a thread is.
enum State {
    /// In no target: a panic is told as ever.
    Elsewhere,
    /// In a target.
    Inside,
    /// In a target that panicked: where, and what it said.
    Panicked(String, String),
}

impl Watch {
    /// Watches in this process, which may be a test: no limits are set.
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

    /// Limits memory and time of this process, and leaves each input in `current` before it is run.
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

/// What this process has mapped.
fn address_space_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let kibibytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse().ok())
        .context("/proc/self/status has no VmSize")?;
    Ok(kibibytes << 10)
}
