//! Handler of SIGBUS: a program touched a mapped byte that can no longer be read.

use std::{io::Write, mem::MaybeUninit, sync::OnceLock};

use libc::{c_int, c_void, siginfo_t};

use super::table::{self, MappedPlace};

/// The previous action of the signal.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Enough for a line with the longest name.
const LINE_BYTES: usize = 512;

/// Installs the handler. A page of a [`super::Mapping`] cannot be read if its file was truncated or its disk failed.
/// Touching it then ends the process with exit status 1 and one line on stderr that names file and offset. Any other
/// SIGBUS has its previous effect. Call it from the `main` of a program; a second call does nothing.
pub fn report_faults() {
    BEFORE.get_or_init(|| {
        // SAFETY: an action of zeros is one without flags, masked signals and handler; the fields that matter are set.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
        // On the signal stack of Rust's runtime, because the thread's own stack may be what failed.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both point to actions. The handler is async-signal-safe: it takes no lock, allocates nothing, and
        // calls only functions that are safe there.
        let failed = unsafe { libc::sigaction(libc::SIGBUS, &action, before.as_mut_ptr()) };
        if failed != 0 {
            tracing::debug!("cannot handle SIGBUS: {}", std::io::Error::last_os_error());
        }
        // SAFETY: zeros are an action, if the call did not write one.
        unsafe { before.assume_init() }
    });
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo.
    let info = unsafe { &*info };
    // A signal that a process sent has no address.
    if info.si_code > 0
        // SAFETY: a SIGBUS of the kernel has an address.
        && let Some(place) = table::find(unsafe { info.si_addr() }.addr())
    {
        let (line, bytes) = line(&place);
        // SAFETY: the line has at least `bytes` bytes, and both calls are allowed in a handler. If stderr is closed,
        // only the exit status reports the fault.
        unsafe {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), bytes);
            libc::_exit(1);
        }
    }
    let default;
    let before = match BEFORE.get() {
        Some(before) => before,
        None => {
            // SAFETY: zeros are the default action.
            default = unsafe { MaybeUninit::zeroed().assume_init() };
            &default
        }
    };
    // SAFETY: the action is valid, and the calls are allowed in a handler. On return, a faulting instruction faults
    // again, now with the previous action. A signal that a process sent is raised again.
    unsafe {
        libc::sigaction(signal, before, std::ptr::null_mut());
        if info.si_code <= 0 {
            libc::raise(signal);
        }
    }
}

/// The message and its length in bytes. Allocates nothing.
fn line(place: &MappedPlace) -> ([u8; LINE_BYTES], usize) {
    let mut line = [0; LINE_BYTES];
    let mut rest = &mut line[..];
    let why = "it was truncated or its disk failed while it was mapped; restore it and run again";
    let _ = rest
        .write_all(b"error: cannot read ")
        .and_then(|()| rest.write_all(place.name()))
        .and_then(|()| writeln!(rest, " at offset {}: {why}", place.offset));
    let bytes = LINE_BYTES - rest.len();
    (line, bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::process::ExitStatusExt,
        process::{Command, Output},
    };

    use super::*;
    use crate::map::{Access, Mapping};

    /// Runs `body` in a separate process. It starts the test `name` again, which comes to this call again.
    fn in_child(name: &str, body: impl FnOnce()) -> Option<Output> {
        const VARIABLE: &str = "GRAPPA_TEST_CHILD";
        if std::env::var_os(VARIABLE).is_some_and(|test| test == name) {
            report_faults();
            body();
            return None;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args([&format!("map::faults::tests::{name}"), "--exact", "--nocapture"])
            .env(VARIABLE, name)
            .output();
        Some(output.unwrap())
    }

    fn cut_file(folder: &tempfile::TempDir) -> (std::path::PathBuf, File) {
        let path = folder.path().join("edges");
        fs::write(&path, vec![7; 100_000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn a_truncated_mapping_is_reported_with_file_and_offset() {
        let output = in_child("a_truncated_mapping_is_reported_with_file_and_offset", || {
            let folder = tempfile::tempdir().unwrap();
            let (path, file) = cut_file(&folder);
            let others: Vec<_> = (0..200).map(|_| Mapping::new(&file, &path, Access::Random).unwrap()).collect();
            let mapping = Mapping::new(&file, &path, Access::Random).unwrap();
            drop(others);
            file.set_len(10_000).unwrap();
            assert_eq!(mapping[9_999], 7);
            let byte = mapping[61_000];
            eprintln!("still here, with {byte}");
        });
        let Some(output) = output else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let line = text.lines().next().unwrap();
        assert!(line.starts_with("error: cannot read /"), "{text}");
        assert!(line.contains("/edges at offset 61000: it was truncated or its disk failed"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn any_other_fault_kills_as_before() {
        let output = in_child("any_other_fault_kills_as_before", || {
            let folder = tempfile::tempdir().unwrap();
            let (path, file) = cut_file(&folder);
            let listed = Mapping::new(&file, &path, Access::Random).unwrap();
            // SAFETY: this test makes the bytes vanish, and the process ends there.
            let foreign = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            file.set_len(10_000).unwrap();
            assert_eq!(listed[0], 7);
            let byte = foreign[61_000];
            eprintln!("still here, with {byte}");
        });
        let Some(output) = output else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{text}");
        assert!(!text.contains("truncated"), "{text}");
    }

    #[test]
    fn the_line_has_every_digit_of_the_offset() {
        let memory = vec![0; 1_000_001];
        let _listed = table::list(&memory, std::path::Path::new("/a/file"), 0);
        for offset in [0usize, 9, 10, 1_000_000] {
            let place = table::find(memory.as_ptr().addr() + offset).unwrap();
            let (line, bytes) = line(&place);
            let text = std::str::from_utf8(&line[..bytes]).unwrap();
            assert!(text.starts_with(&format!("error: cannot read /a/file at offset {offset}: it")), "{text}");
            assert!(text.ends_with("run again\n"), "{text}");
        }
    }
}
