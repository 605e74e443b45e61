//! Ranks that join beside programs that are silent, stopped or strange.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::program::process_of_rank;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{TrainFolder, assert_failed, end, port, start_as};

/// What the launcher tells the ranks, in the environment of the first one that there is.
fn environment(process: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{process}/environ")).unwrap_or_default()).into_owned()
}

/// Seconds that a process may take to start, on a busy machine.
const START: u64 = 30;

const OPTIONS: &str = "--epochs 1 --join-timeout 2 --timeout 2";

/// Waits until somebody listens.
fn wait_for_port(port: u16) {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(START), "nobody listens");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Serves one connection after the other.
fn serve(answer: fn(TcpStream)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    port
}

#[test]
fn a_rank_that_joins_a_silent_port_or_a_stranger_ends_in_time_and_says_so() {
    let folder = TrainFolder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.port())).unwrap();
    let slow = serve(|mut stream| {
        for byte in b"grappa-store 1\r\n" {
            let _ = stream.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(500));
        }
    });
    let strange = serve(|mut stream| {
        let _ = stream.write_all(&[0xA5; 4096]);
        let _ = stream.read(&mut [0; 4096]);
    });
    let closing = serve(drop);
    let begin = Instant::now();
    let started = [silent.1, slow, strange, closing].map(|port| folder.rank([1, 2, port], OPTIONS));
    let mut of_torchrun = folder.train(OPTIONS);
    of_torchrun.env("TORCHELASTIC_USE_AGENT_STORE", "True");
    let of_torchrun = start_as([1, 2, silent.1], &mut of_torchrun);
    let [silent_ran, slow, strange, closing] = started.map(end);
    let of_torchrun = end(of_torchrun);
    assert!(begin.elapsed() < Duration::from_secs(2 + START), "they waited for longer than --join-timeout");
    let at = format!("rank 1 got no answer from 127.0.0.1:{} within 2 s (--join-timeout)", silent.1);
    assert_failed(&silent_ran, &[&at, "rank 0 is stopped or overloaded"]);
    assert_failed(&slow, &["rank 1 got no answer from 127.0.0.1:"]);
    for ran in [strange, closing] {
        assert_failed(&ran, &["rank 1 met a stranger at 127.0.0.1:"]);
    }
    assert_failed(&of_torchrun, &["the port accepts connections, and nobody answers: torchrun is stopped"]);
}

#[test]
fn a_rank_ends_in_time_if_rank_0_is_stopped_before_it_answers() {
    let folder = TrainFolder::new();
    let port = port();
    let mut first = folder.rank([0, 2, port], "--epochs 1");
    wait_for_port(port);
    kill_process(Pid::from_child(&first), Signal::STOP).unwrap();
    let begin = Instant::now();
    let ran = end(folder.rank([1, 2, port], OPTIONS));
    assert!(begin.elapsed() < Duration::from_secs(2 + START));
    assert_failed(&ran, &["rank 1 got no answer from 127.0.0.1:", "rank 0 is stopped or overloaded"]);
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Connections that say something else, and some that say nothing.
fn molest(port: u16, is_over: &AtomicBool) {
    let mut silent = Vec::new();
    while !is_over.load(Relaxed) {
        for bytes in [&[0xA5; 64][..], b"GET / HTTP/1.1\r\n\r\n", b"grappa-store 1\r\n"] {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                let _ = stream.write_all(bytes);
            }
        }
        if silent.len() < 100 {
            silent.extend(TcpStream::connect(("127.0.0.1", port)).ok());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn connections_of_strangers_do_not_delay_ranks_that_join() {
    let folder = TrainFolder::new();
    let port = port();
    // They joined after two minutes.
    let options = "--epochs 1 --join-timeout 30 --out run";
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| molest(port, &is_over));
        let first = folder.rank([0, 2, port], options);
        wait_for_port(port);
        let second = folder.rank([1, 2, port], options);
        let ran = [first, second].map(end);
        is_over.store(true, Relaxed);
        for ran in ran {
            ran.success();
        }
    });
}

#[test]
fn a_rank_with_another_secret_is_refused_at_once() {
    let folder = TrainFolder::new();
    let port = port();
    let with = |number, secret: &str| {
        let mut command = folder.train("--epochs 1 --out run");
        if !secret.is_empty() {
            command.env("GRAPPA_SECRET", secret);
        }
        start_as([number, 2, port], &mut command)
    };
    let first = with(0, "0123456789abcdef");
    wait_for_port(port);
    for ran in [with(1, "0123456789abcdeF"), with(1, "")].map(end) {
        let at = format!("rank 1 and rank 0 at 127.0.0.1:{port} have different secrets");
        assert_failed(&ran, &[&at, "give all ranks the same GRAPPA_SECRET, or none"]);
    }
    // They were none of its ranks.
    for ran in [first, with(1, "0123456789abcdef")].map(end) {
        ran.success();
    }
}

/// The addresses, in hexadecimal, at which processes listen.
fn listening(processes: &[u32]) -> Vec<String> {
    let folders = processes.iter().filter_map(|process| fs::read_dir(format!("/proc/{process}/fd")).ok());
    let links = folders.flat_map(|files| files.flatten().filter_map(|file| fs::read_link(file.path()).ok()));
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let mut addresses = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == "0A" && sockets.iter().any(|socket| socket == fields[9]) {
                addresses.push(fields[1].split(':').next().unwrap().to_owned());
            }
        }
    }
    addresses
}

/// The launcher of a run and its two ranks.
fn processes(launcher: &Child, folder: &Path) -> Vec<u32> {
    let ranks = [0, 1].map(|rank| process_of_rank(rank, folder));
    let ranks = ranks.into_iter().flatten().map(|process| process.as_raw_nonzero().get() as u32);
    ranks.chain([launcher.id()]).collect()
}

#[test]
fn workers_listen_on_the_loopback_interface_only_and_have_a_secret() {
    let folder = TrainFolder::new();
    let mut launcher = folder.train("--workers 2 --epochs 100000 --out run");
    let mut launcher = launcher.stderr(Stdio::piped()).spawn().unwrap();
    folder.wait_for_epochs("run", 1);
    let processes = processes(&launcher, folder.root());
    let found = listening(&processes);
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    let secret = environment(processes[0]).split('\0').any(|variable| variable.starts_with("GRAPPA_SECRET="));
    launcher.wait().unwrap();
    assert!(secret, "the ranks have no secret");
    assert_eq!(processes.len(), 3);
    // The store, and Gloo on each rank.
    assert!(found.len() >= 3, "{found:?}");
    assert!(found.iter().all(|address| address == "0100007F"), "{found:?}");
}
