//! Links with a delay, which `tc` cannot give where the kernel has no `netem`: a TUN device on each host, and threads that pass the packets
//! on when they are due.

#![expect(unsafe_code, reason = "a TUN device is named by an ioctl")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    ioctl::{Setter, ioctl, opcode},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// A packet is at most this long: fewer of them leave more of the processor to training.
pub const MTU: usize = 16 << 10;
/// Packets that would wait longer for their link are dropped.
const QUEUE: Duration = Duration::from_millis(400);
/// How often a thread looks whether it shall end.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Limits of links: bandwidth and delay.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// Bandwidth of each host's link, in each direction; none: no limit.
    pub megabits: Option<u32>,
    /// From host to host.
    pub delay: Duration,
}

/// Threads between the TUN devices of hosts. They end when it is dropped.
#[derive(Debug)]
pub struct Relay {
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A packet, and when it arrives.
struct Flight {
    due: Instant,
    packet: Vec<u8>,
}

/// When the links of the hosts are free again.
struct Schedule {
    links: Links,
    up: Vec<Instant>,
    down: Vec<Instant>,
}

impl Schedule {
    /// The time at which a packet of `bytes` arrives that a host sends now. None: the queue is full.
    fn due(&mut self, from: usize, to: usize, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let time = match self.links.megabits {
            Some(megabits) => Duration::from_secs_f64(8.0 * bytes as f64 / (f64::from(megabits) * 1e6)),
            None => Duration::ZERO,
        };
        let sent = now.max(self.up[from]) + time;
        // The last bytes reach the receiver's link when they have left the sender's, so only a busy link delays them further.
        let received = sent.max(self.down[to] + time);
        if received > now + QUEUE {
            return None;
        }
        (self.up[from], self.down[to]) = (sent, received);
        Some(received + self.links.delay)
    }
}

impl Relay {
    /// Connects TUN devices. The last byte of an address is the number of the host plus `first`.
    ///
    /// # Errors
    /// If a device cannot be used.
    pub fn new(devices: Vec<File>, first: u8, links: Links) -> io::Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let hosts = devices.len();
        let schedule = Arc::new(Mutex::new(Schedule {
            links,
            up: vec![Instant::now(); hosts],
            down: vec![Instant::now(); hosts],
        }));
        let mut threads = Vec::new();
        let mut receivers = Vec::new();
        for device in &devices {
            let (sender, flights) = mpsc::channel();
            let device = device.try_clone()?;
            threads.push(thread::spawn(move || deliver(device, &flights)));
            receivers.push(sender);
        }
        for (from, device) in devices.into_iter().enumerate() {
            let (stops, schedule, receivers) = (stops.clone(), schedule.clone(), receivers.clone());
            threads.push(thread::spawn(move || {
                pass_on(device, &stops, |packet| {
                    // Byte 19 of an IPv4 packet is the last one of its destination's address. Hosts have no other packets to send.
                    let to = packet.get(19).map(|byte| usize::from(byte.wrapping_sub(first)));
                    if let Some(to) = to.filter(|&to| packet[0] >> 4 == 4 && to < hosts) {
                        send(&schedule, &receivers, from, to, packet);
                    }
                });
            }));
        }
        Ok(Self { stops, threads })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say: a bench that failed has its own message.
            let _ = thread.join();
        }
    }
}

fn send(schedule: &Mutex<Schedule>, receivers: &[Sender<Flight>], from: usize, to: usize, packet: &[u8]) {
    let mut schedule = schedule.lock().expect("no thread panics while it holds the lock");
    if let Some(due) = schedule.due(from, to, packet.len()) {
        let packet = packet.to_vec();
        // Under the lock, so that packets are in the order of their times. At the end nobody receives them.
        let _ = receivers[to].send(Flight { due, packet });
    }
}

/// Hands each packet that a host sends to `packet`, until it shall end.
fn pass_on(mut device: File, stops: &AtomicBool, mut packet: impl FnMut(&[u8])) {
    let mut bytes = vec![0; MTU];
    while !stops.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&PATIENCE));
        if ready.is_ok_and(|devices| devices > 0) {
            match device.read(&mut bytes) {
                Ok(length) => packet(&bytes[..length]),
                // The host was removed.
                Err(_) => return,
            }
        }
    }
}

/// Gives a host its packets when they are due.
fn deliver(mut device: File, flights: &Receiver<Flight>) {
    for Flight { due, packet } in flights {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if device.write_all(&packet).is_err() {
            // The host was removed.
            return;
        }
    }
}

/// Creates a TUN device in a network namespace.
///
/// # Errors
/// If the machine does not permit it.
pub fn device(namespace: &str, name: &str) -> io::Result<File> {
    let namespace = File::open(format!("/run/netns/{namespace}"))?;
    let request = Request::new(name);
    let created = thread::spawn(move || {
        // Only this thread moves, and it ends.
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: TUNSETIFF reads a `struct ifreq`, whose layout `Request` has.
        unsafe { ioctl(&device, Setter::<TUNSETIFF, Request>::new(request)) }?;
        Ok(device)
    });
    created.join().map_err(|_| io::Error::other("the thread that creates a TUN device panicked"))?
}

/// Names a TUN device.
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);
/// A TUN device, without a header before each packet (`IFF_TUN | IFF_NO_PI`).
const FLAGS: i16 = 0x0001 | 0x1000;

/// `struct ifreq` of the kernel.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

impl Request {
    /// At most 15 bytes of the name.
    fn new(name: &str) -> Self {
        let mut bytes = [0; 16];
        for (to, byte) in bytes[..15].iter_mut().zip(name.bytes()) {
            *to = byte;
        }
        Self { name: bytes, flags: FLAGS, rest: [0; 22] }
    }
}
