//! Opening files that a user named.
//!
//! A path may name anything. Opening a pipe without a writer blocks forever, and a device may have no end. So this
//! module opens every file that a user names, and every file in a folder that a user names. It opens regular files
//! only; anything else is an immediate error.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{Error, Position, Result, size::ByteSize};

/// Opens the regular file `path` for reading. Never blocks.
///
/// # Errors
/// If it cannot be opened, or is a folder, a pipe, a socket or a device.
pub fn open(path: &Path) -> Result<File> {
    // Check before opening, because opening a pipe or a device may have side effects.
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    require_regular(path, metadata.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)
        .map_err(Error::io("open", path))?;
    // The path may name another file by now.
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    require_regular(path, metadata.file_type())?;
    // With O_NONBLOCK, io_uring returns EAGAIN when it would have to wait for the disk.
    fcntl_getfl(&file)
        .and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))
        .map_err(|error| Error::io("open", path)(error.into()))?;
    Ok(file)
}

/// Reads all of the regular file `path`.
///
/// # Errors
/// As [`open`], and if it cannot be read or memory is short.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, u64::MAX)
}

/// Reads all of the regular file `path`, if there is one.
///
/// # Errors
/// As [`read`].
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads all of the regular file `path`, which must have at most `bytes_max` bytes: for files that are small by nature,
/// such as configurations.
///
/// # Errors
/// As [`read`], and if it is larger.
pub fn read_up_to(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut file = open(path)?;
    let bytes = file.metadata().map_err(Error::io("read", path))?.len();
    if bytes > bytes_max {
        return Err(too_long(path, bytes_max, bytes));
    }
    let mut content = Vec::new();
    // Read up to one byte more than allowed, because files in /proc report a length of 0 and other files may be
    // growing.
    Read::by_ref(&mut file)
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(Error::io("read", path))?;
    if content.len() as u64 > bytes_max {
        return Err(too_long(path, bytes_max, content.len() as u64));
    }
    Ok(content)
}

fn too_long(path: &Path, bytes_max: u64, found: u64) -> Error {
    let problem = format!(
        "expected a file of at most {}, found {}; is this the right file?",
        ByteSize(bytes_max),
        ByteSize(found)
    );
    Error::input(path, Position::Whole, problem)
}

/// Reads all of the regular file `path`, which must be UTF-8 and have at most `bytes_max` bytes.
///
/// # Errors
/// As [`read_up_to`], and if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    String::from_utf8(read_up_to(path, bytes_max)?).map_err(|error| {
        let at = Position::Offset(error.utf8_error().valid_up_to() as u64);
        Error::input(path, at, "expected text in UTF-8; save it in that encoding")
    })
}

pub(crate) fn require_regular(path: &Path, kind: FileType) -> Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let problem = if kind.is_dir() {
        "this is a folder, not a file"
    } else if kind.is_fifo() {
        "this is a pipe, not a file; files are read in several places and more than once, so save it to a file first"
    } else if kind.is_socket() {
        "this is a socket, not a file"
    } else {
        "this is a device, not a file"
    };
    Err(Error::input(path, Position::Whole, problem))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, time::Instant};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T>, part: &str) {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn only_regular_files_are_opened_and_others_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let begin = Instant::now();
        refused(open(&pipe), "pipe: this is a pipe");
        refused(open(&link), "link: this is a pipe");
        refused(read(Path::new("/dev/zero")), "/dev/zero: this is a device");
        refused(open(folder.path()), "this is a folder");
        refused(open(&folder.path().join("none")), "No such file");
        assert!(begin.elapsed().as_secs() < 10);
    }

    #[test]
    fn a_refused_pipe_stays_usable_for_its_writer() {
        let (reader, mut writer) = io::pipe().unwrap();
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        refused(open(Path::new(&name)), "this is a pipe");
        writer.write_all(b"still open").unwrap();
    }

    #[test]
    fn a_regular_file_is_read_whole_up_to_the_maximum_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "twelve bytes").unwrap();
        assert_eq!(read(&path).unwrap(), b"twelve bytes");
        assert_eq!(read_if_there(&path).unwrap().unwrap(), b"twelve bytes");
        assert_eq!(read_if_there(&folder.path().join("none")).unwrap(), None);
        assert_eq!(read_text(&path, 12).unwrap(), "twelve bytes");
        refused(read_up_to(&path, 11), "at most 11 B, found 12 B");
        // Files in /proc report a length of 0.
        refused(read_up_to(Path::new("/proc/self/status"), 11), "at most 11 B");
        fs::write(&path, b"ab\xff").unwrap();
        refused(read_text(&path, 12), "at offset 2: expected text in UTF-8");
        let flags = fcntl_getfl(open(&path).unwrap()).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
