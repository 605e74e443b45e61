//! Progress bars: one line on stderr.
//!
//! Workers add to two atomics. A background thread reads them and redraws the line ten times per second. A finished stage
//! leaves one line.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use grappa_io::{
    progress::Progress,
    size::{ByteSize, count, duration},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::{
    screen::{SCREEN, eprint_line},
    signals,
};

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Progress on stderr: name of the stage, bytes done, bytes and edges per second, and time left.
pub struct Bars {
    /// `None`: nothing is shown and nothing is counted.
    shown: Option<VisibleBar>,
    /// Whoever runs the program as a function, and shows its progress.
    caller: Option<Arc<dyn Progress + Send + Sync>>,
}

struct VisibleBar {
    bar: ProgressBar,
    edges: Arc<AtomicU64>,
    stage: Mutex<Option<RunningStage>>,
    /// Whether a finished stage leaves a line.
    leaves_lines: bool,
}

/// The quantity that a stage counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StageUnit {
    /// Bytes, with a known total.
    Bytes,
    /// Bytes, with an unknown total.
    OpenBytes,
    Steps,
}

struct RunningStage {
    name: String,
    started: Instant,
}

impl Bars {
    /// Bars on stderr if it is a terminal, else hidden bars. With `leaves_lines`, a finished stage leaves a line.
    pub(crate) fn new(leaves_lines: bool) -> Self {
        if SCREEN.is_hidden() {
            return Self::hidden();
        }
        // Hidden until the first stage, then drawn by the screen it is added to.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self {
            shown: Some(VisibleBar {
                bar: SCREEN.add(bar),
                edges: Arc::default(),
                stage: Mutex::new(None),
                leaves_lines,
            }),
            caller: None,
        }
    }

    pub(crate) fn hidden() -> Self {
        Self { shown: None, caller: None }
    }

    /// No bars: `caller` gets the progress.
    pub(crate) fn of_caller(caller: Arc<dyn Progress + Send + Sync>) -> Self {
        Self { shown: None, caller: Some(caller) }
    }
}

impl Progress for Bars {
    fn stage(&self, name: &str, bytes: Option<u64>) {
        tracing::info!("{name}");
        if let Some(shown) = &self.shown {
            shown.finish_stage();
            let counts = bytes.map_or(StageUnit::OpenBytes, |_| StageUnit::Bytes);
            shown.start_stage(name, counts, bytes);
        }
        if let Some(caller) = &self.caller {
            caller.stage(name, bytes);
        }
    }

    fn steps(&self, name: &str, steps: u64) {
        tracing::info!("{name}");
        if let Some(shown) = &self.shown {
            shown.finish_stage();
            shown.start_stage(name, StageUnit::Steps, Some(steps));
        }
        if let Some(caller) = &self.caller {
            caller.steps(name, steps);
        }
    }

    fn advance(&self, bytes: u64, edges: u64) {
        if let Some(shown) = &self.shown {
            shown.edges.fetch_add(edges, Relaxed);
            shown.bar.inc(bytes);
        }
        if let Some(caller) = &self.caller {
            caller.advance(bytes, edges);
        }
    }

    fn is_stopped(&self) -> bool {
        signals::stop_requested() || self.caller.as_ref().is_some_and(|caller| caller.is_stopped())
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(shown) = &self.shown {
            shown.finish_stage();
            shown.bar.finish_and_clear();
            SCREEN.remove(&shown.bar);
        }
    }
}

impl VisibleBar {
    fn start_stage(&self, name: &str, counts: StageUnit, total: Option<u64>) {
        self.edges.store(0, Relaxed);
        // The style first, because the following calls draw.
        self.bar.set_style(style(counts, total, &self.edges));
        self.bar.set_message(name.to_owned());
        self.bar.reset();
        match total {
            Some(total) => self.bar.set_length(total),
            None => self.bar.unset_length(),
        }
        self.bar.enable_steady_tick(REDRAW_INTERVAL);
        let stage = RunningStage { name: name.to_owned(), started: Instant::now() };
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Some(stage);
    }

    /// Prints the line of a finished stage, if lines are wanted.
    fn finish_stage(&self) {
        let Some(stage) = self.stage.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if !self.leaves_lines {
            return;
        }
        let line = finished_line(&stage.name, stage.started.elapsed(), self.bar.position(), self.edges.load(Relaxed));
        eprint_line(&line);
    }
}

fn finished_line(name: &str, elapsed: Duration, bytes: u64, edges: u64) -> String {
    let [bytes_per_second, edges_per_second] =
        [bytes, edges].map(|n| (n as f64 / elapsed.as_secs_f64().max(1e-3)) as u64);
    let mut line = format!("{name}: {}", duration(elapsed));
    if bytes > 0 {
        line += &format!(", {} ({}/s)", ByteSize(bytes), ByteSize(bytes_per_second));
    }
    if edges > 0 {
        line += &format!(", {} edges ({}/s)", count(edges), count(edges_per_second));
    }
    line
}

fn style(counts: StageUnit, total: Option<u64>, edges: &Arc<AtomicU64>) -> ProgressStyle {
    let template = match counts {
        StageUnit::Bytes => "{msg} [{bar:24}] {percent}% {done}, {left} left",
        StageUnit::OpenBytes => "{spinner} {msg} {done}",
        StageUnit::Steps => "{msg} [{bar:24}] {done}, {left} left",
    };
    let edges = Arc::clone(edges);
    ProgressStyle::with_template(template)
        .expect("the template is well formed")
        .progress_chars("=> ")
        .with_key("done", move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let edges = edges.load(Relaxed);
            let text = match (counts, state.len()) {
                // The bar is drawn before it has the numbers of the stage, with the numbers of the stage before, which may count something else.
                (_, length) if length != total => "starting".to_owned(),
                (StageUnit::Steps, length) => stepped(state.pos(), length.unwrap_or(0), edges, state.elapsed()),
                (_, length) => done(state.pos(), length, edges, state.per_sec(), state.elapsed()),
            };
            let _ = out.write_str(&text);
        })
        .with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = out.write_str(&left(state.eta()));
        })
}

/// Progress of a running stage and its speed: the recent rate of bytes, and edges in the average proportion to bytes.
fn done(bytes: u64, bytes_total: Option<u64>, edges: u64, bytes_per_second: f64, elapsed: Duration) -> String {
    let mut parts = Vec::new();
    match bytes_total {
        Some(total) => parts.push(format!("{} of {}", ByteSize(bytes), ByteSize(total))),
        None if bytes > 0 => parts.push(ByteSize(bytes).to_string()),
        None => {}
    }
    if bytes > 0 {
        parts.push(format!("{}/s", ByteSize(bytes_per_second as u64)));
    }
    if edges > 0 {
        let per_second = if bytes > 0 {
            bytes_per_second * edges as f64 / bytes as f64
        } else {
            edges as f64 / elapsed.as_secs_f64().max(1e-3)
        };
        parts.push(format!("{} edges/s", count(per_second as u64)));
    }
    if bytes_total.is_none() {
        parts.push(duration(elapsed));
    }
    parts.join(", ")
}

/// Finished steps of a running stage, and the average rate of edges.
fn stepped(steps: u64, total: u64, edges: u64, elapsed: Duration) -> String {
    let rate = edges as f64 / elapsed.as_secs_f64().max(1e-3);
    format!("{steps}/{total} steps, {} edges/s", count(rate as u64))
}

/// Time left, without fractions of seconds.
fn left(left: Duration) -> String {
    if left < Duration::from_secs(100) { format!("{} s", left.as_secs()) } else { duration(left) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_finished_stage_says_what_it_did() {
        assert_eq!(
            finished_line("reading edges", Duration::from_secs(2), 1 << 30, 67_000_000),
            "reading edges: 2.00 s, 1.0 GiB (512.0 MiB/s), 67.0 M edges (33.5 M/s)"
        );
        assert_eq!(finished_line("syncing", Duration::from_secs(2), 0, 0), "syncing: 2.00 s");
    }

    #[test]
    fn a_running_stage_shows_only_what_it_counts() {
        let second = Duration::from_secs(1);
        assert_eq!(
            done(1 << 20, Some(2 << 20), 500, 2_097_152.0, second),
            "1.0 MiB of 2.0 MiB, 2.0 MiB/s, 1000 edges/s"
        );
        assert_eq!(done(0, None, 500, 0.0, second), "500 edges/s, 1.00 s");
        assert_eq!(done(0, None, 0, 0.0, second), "1.00 s");
    }

    #[test]
    fn steps_are_counted_as_such() {
        assert_eq!(stepped(12, 38, 3_000_000, Duration::from_secs(2)), "12/38 steps, 1.50 M edges/s");
        assert_eq!(stepped(0, 38, 0, Duration::ZERO), "0/38 steps, 0 edges/s");
    }

    /// Text that was drawn.
    #[derive(Debug, Default, Clone)]
    struct Drawn(Arc<Mutex<String>>);

    impl indicatif::TermLike for Drawn {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stage_never_shows_the_count_of_the_stage_before_as_bytes() {
        let drawn = Drawn::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(drawn.clone()), 255);
        let shown = VisibleBar {
            bar: ProgressBar::with_draw_target(None, target),
            edges: Arc::default(),
            stage: Mutex::new(None),
            leaves_lines: false,
        };
        shown.start_stage("training", StageUnit::Steps, Some(12));
        shown.bar.inc(12);
        shown.start_stage("aggregating", StageUnit::OpenBytes, None);
        shown.bar.force_draw();
        let text = drawn.0.lock().unwrap().clone();
        assert!(text.contains("aggregating"), "{text}");
        assert!(!text.contains(" B"), "{text}");
    }

    #[test]
    fn bars_away_from_a_terminal_do_nothing() {
        let bars = Bars::hidden();
        bars.stage("reading", Some(10));
        bars.advance(10, 1);
    }
}
