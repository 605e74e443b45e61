//! Measured and planned numbers of stages, and their tables.

use std::ops::{Add, Mul};

use grappa_benches::{child::Measured, disk::Disk, disk_use::DiskUse, record::Table};

const GB: f64 = 1e9;
const GIB: f64 = (1u64 << 30) as f64;

/// Time, bytes and memory of a stage, measured or planned. None if unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    pub seconds: Option<f64>,
    pub read: Option<f64>,
    pub written: Option<f64>,
    pub memory: Option<f64>,
    pub scratch: Option<f64>,
}

impl Numbers {
    /// Of a program.
    pub fn from_measured(measured: &Measured, disk: &DiskUse) -> Self {
        Self {
            seconds: Some(measured.wall.as_secs_f64()),
            read: Some(disk.bytes_read as f64),
            written: Some(disk.bytes_written as f64),
            memory: Some(measured.peak_rss_bytes as f64),
            scratch: Some(disk.scratch_bytes as f64),
        }
    }

    /// Of a stage whose time alone is known.
    pub fn of_seconds(seconds: f64) -> Self {
        Self { seconds: Some(seconds), ..Self::default() }
    }
}

/// One stage after the other: time and traffic add up.
impl Add for Numbers {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            seconds: sum(self.seconds, next.seconds),
            read: sum(self.read, next.read),
            written: sum(self.written, next.written),
            ..self
        }
    }
}

/// A stage that is repeated.
impl Mul<f64> for Numbers {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self {
            seconds: self.seconds.map(|seconds| times * seconds),
            read: self.read.map(|bytes| times * bytes),
            written: self.written.map(|bytes| times * bytes),
            ..self
        }
    }
}

/// A line of a table: a stage, or a program as a whole.
#[derive(Debug)]
pub struct Line {
    pub step: String,
    pub measured: Numbers,
    pub planned: Numbers,
    /// Programs have a floor.
    pub is_program: bool,
}

impl Line {
    /// A stage of a run, with its plan.
    pub fn planned(step: &str, seconds: f64, planned: Numbers) -> Self {
        Self { step: step.to_owned(), measured: Numbers::of_seconds(seconds), planned, is_program: false }
    }

    /// A program as a whole, with its plan.
    pub fn program(step: &str, (measured, disk): &(Measured, DiskUse), planned: Numbers) -> Self {
        Self { step: step.to_owned(), measured: Numbers::from_measured(measured, disk), planned, is_program: true }
    }
}

/// A table with notes.
#[derive(Debug)]
pub struct Section {
    name: String,
    pub lines: Vec<Line>,
    pub notes: Vec<String>,
}

impl Section {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), lines: Vec::new(), notes: Vec::new() }
    }

    pub fn table(&self, disk: &Disk) -> Table {
        let mut table = Table::new(&[
            &self.name,
            "s",
            "GB read",
            "GB written",
            "peak RSS, GiB",
            "scratch, GiB",
            "floor, s",
            "over floor",
        ]);
        for line in &self.lines {
            let (measured, planned) = (&line.measured, &line.planned);
            let floor = match (line.is_program, measured.read, measured.written) {
                (true, Some(read), Some(written)) => Some(disk.seconds(read as u64, written as u64)),
                _ => None,
            };
            let over =
                floor.zip(measured.seconds).filter(|&(floor, _)| floor > 0.0).map(|(floor, seconds)| seconds / floor);
            table.row([
                line.step.clone(),
                cell(measured.seconds, planned.seconds, 1.0),
                cell(measured.read, planned.read, GB),
                cell(measured.written, planned.written, GB),
                cell(measured.memory, planned.memory, GIB),
                cell(measured.scratch, planned.scratch, GIB),
                cell(floor, None, 1.0),
                cell(over, None, 1.0),
            ]);
        }
        table
    }
}

/// The sum of the numbers that are known. None if none is.
fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    }
}

/// `measured / planned (ratio)`, in `unit`.
fn cell(measured: Option<f64>, planned: Option<f64>, unit: f64) -> String {
    let [measured, planned] = [measured, planned].map(|number| number.map(|number| number / unit));
    match (measured, planned) {
        (None, None) => String::new(),
        (Some(measured), None) => format!("{measured:.2}"),
        (None, Some(planned)) => format!("- / {planned:.2}"),
        (Some(measured), Some(planned)) if measured > 0.0 => {
            format!("{measured:.2} / {planned:.2} ({:.2})", planned / measured)
        }
        (Some(measured), Some(planned)) => format!("{measured:.2} / {planned:.2}"),
    }
}
