//! Fault injection: kills the process just before a change of the file system, or holds a thread there.
//!
//! Environment variables steer it, which tests set for the programs that they start:
//!
//! - `GRAPPA_KILL_AT=N`: the process dies before its Nth change, counted from 1;
//! - `GRAPPA_KILL_LOG=FILE`: each change is written to the file before it is made, one per line;
//! - `GRAPPA_HOLD_AT=CHANGE` and `GRAPPA_HOLD=FILE`: the first thread that is about to make the change creates the
//!   file, and waits until it is removed. A change is an action and the end of a path, such as `create chunk-1/edges`.
//!   Other threads continue, so that the process can handle signals.
//!
//! Only builds with debug assertions have this module.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};

struct Plan {
    kill_at: Option<u64>,
    log: Option<File>,
    hold: Option<Hold>,
}

/// A change that a thread waits before.
struct Hold {
    action: String,
    /// The end of the path.
    path: PathBuf,
    /// Exists while the thread waits.
    file: PathBuf,
    was_reached: AtomicBool,
}

impl Hold {
    fn from_env() -> Option<Self> {
        let change = env::var("GRAPPA_HOLD_AT").ok()?;
        let (action, path) = change.split_once(' ').expect("GRAPPA_HOLD_AT is an action and a path");
        Some(Self {
            action: action.to_owned(),
            path: path.into(),
            file: env::var_os("GRAPPA_HOLD").expect("GRAPPA_HOLD names a file").into(),
            was_reached: AtomicBool::new(false),
        })
    }

    /// Waits if this is the change, for the first time.
    fn reach(&self, action: &str, path: &Path) {
        let is_it = action == self.action && path.ends_with(&self.path);
        if !is_it || self.was_reached.swap(true, Ordering::Relaxed) {
            return;
        }
        File::create(&self.file).expect("GRAPPA_HOLD can be created");
        while self.file.exists() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let kill_at = env::var("GRAPPA_KILL_AT").ok();
    let log = env::var_os("GRAPPA_KILL_LOG");
    Plan {
        kill_at: kill_at.map(|text| text.parse().expect("GRAPPA_KILL_AT is a number")),
        log: log.map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.expect("GRAPPA_KILL_LOG can be written to")
        }),
        hold: Hold::from_env(),
    }
});

static REACHED: AtomicU64 = AtomicU64::new(0);

/// Counts a change that is about to be made. Kills the process or waits if it is the selected change.
pub fn reach(action: &str, path: &Path) {
    let plan = &*PLAN;
    let number = REACHED.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(mut log) = plan.log.as_ref() {
        // One write, so that lines of several threads do not mix.
        let line = format!("{number} {action} {}\n", path.display());
        log.write_all(line.as_bytes()).expect("GRAPPA_KILL_LOG can be written to");
    }
    if plan.kill_at == Some(number) {
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        loop {
            thread::park();
        }
    }
    if let Some(hold) = &plan.hold {
        hold.reach(action, path);
    }
}

/// Removes the files in a folder one by one, so that the process can be killed between two of them. Does nothing unless
/// the process will be killed or logs its changes.
pub fn remove_slowly(folder: &Path) {
    if PLAN.kill_at.is_none() && PLAN.log.is_none() {
        return;
    }
    // The removal that follows reports an error that is ignored here.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_slowly(&path);
            continue;
        }
        reach("remove", &path);
        let _ = fs::remove_file(path);
    }
}
