//! Hosts with links of a given bandwidth: network namespaces around a bridge, with token buckets (`tc tbf`) at both ends of each link, or
//! with a relay between them if links have a delay.

mod relay;

use std::{
    fs::File,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

pub use self::relay::Links;
use self::relay::Relay;
use crate::child;

/// The interface of a host.
pub const INTERFACE: &str = "eth0";
/// The last byte of the first host's address.
const FIRST: u8 = 1;
/// Bytes that a token bucket lets pass at once.
const BURST_BYTES: u32 = 32 << 10;
/// Time after which a packet in a token bucket is dropped.
const QUEUE_MS: u32 = 400;

/// Several hosts, removed when they are dropped.
#[derive(Debug)]
pub struct Network {
    /// Their namespaces.
    hosts: Vec<String>,
    /// The namespace of the bridge, if they are around one.
    switch: Option<String>,
    relay: Option<Relay>,
}

impl Network {
    /// Creates this number of hosts.
    ///
    /// # Errors
    /// If this machine does not permit it.
    pub fn new(hosts: u32, links: Links) -> Result<Self> {
        let mut network = Self { hosts: Vec::new(), switch: None, relay: None };
        match links.delay.is_zero() {
            true => network.add_bridged(hosts, links.megabits)?,
            false => network.add_relayed(hosts, links)?,
        }
        Ok(network)
    }

    /// Adds hosts whose packets go through a TUN device to the relay.
    fn add_relayed(&mut self, hosts: u32, links: Links) -> Result<()> {
        let mut devices: Vec<File> = Vec::new();
        for number in 0..hosts {
            let host = self.add_host(number)?;
            let device = relay::device(&host, INTERFACE);
            devices.push(device.context("a TUN device cannot be created")?);
            let mtu = relay::MTU.to_string();
            run("ip", &["-n", &host, "link", "set", INTERFACE, "mtu", &mtu])?;
            start(&host, number)?;
        }
        self.relay = Some(Relay::new(devices, FIRST, links)?);
        Ok(())
    }

    /// Adds hosts around a bridge.
    fn add_bridged(&mut self, hosts: u32, megabits: Option<u32>) -> Result<()> {
        let switch = namespace("switch");
        run("ip", &["netns", "add", &switch])?;
        self.switch = Some(switch.clone());
        run("ip", &["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        run("ip", &["-n", &switch, "link", "set", "bridge", "up"])?;
        for number in 0..hosts {
            let (host, port) = (self.add_host(number)?, format!("port{number}"));
            let add = ["-n", &host, "link", "add", INTERFACE, "type", "veth"];
            run("ip", &[&add[..], &["peer", "name", &port, "netns", &switch]].concat())?;
            run("ip", &["-n", &switch, "link", "set", &port, "master", "bridge"])?;
            start(&host, number)?;
            run("ip", &["-n", &switch, "link", "set", &port, "up"])?;
            if let Some(megabits) = megabits {
                limit(&host, INTERFACE, megabits)?;
                limit(&switch, &port, megabits)?;
            }
        }
        Ok(())
    }

    /// Adds the namespace of a host, and returns its name.
    fn add_host(&mut self, number: u32) -> Result<String> {
        let host = namespace(&number.to_string());
        run("ip", &["netns", "add", &host])?;
        self.hosts.push(host.clone());
        Ok(host)
    }

    /// The same command on a host.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn on(&self, host: u32, command: &Command) -> Command {
        within(&self.hosts[host as usize], command)
    }

    /// Bytes that the interface of each host has sent.
    ///
    /// # Errors
    /// If a host does not tell them.
    pub fn sent_bytes(&self) -> Result<Vec<u64>> {
        let hosts = (0..self.hosts.len() as u32).map(|host| {
            let mut counters = Command::new("cat");
            let counters = child::run(&mut self.on(host, counters.arg("/proc/self/net/dev")))?.stdout;
            sent_by(INTERFACE, &counters).with_context(|| format!("host {host} has no interface {INTERFACE}"))
        });
        hosts.collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Before its devices go.
        self.relay = None;
        for name in self.hosts.iter().chain(&self.switch) {
            // A bench that failed has its own message.
            let _ = run("ip", &["netns", "delete", name]);
        }
    }
}

/// The same command in a namespace.
fn within(namespace: &str, command: &Command) -> Command {
    let mut there = Command::new("ip");
    there.args(["netns", "exec", namespace]);
    child::wrapped(there, command)
}

/// The bytes that an interface has sent, as `/proc/net/dev` tells them: the ninth number of its line.
fn sent_by(interface: &str, counters: &str) -> Option<u64> {
    counters.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let sent = counts.split_whitespace().nth(8).filter(|_| name.trim() == interface)?;
        sent.parse().ok()
    })
}

/// The address of a host.
pub fn address(host: u32) -> String {
    format!("10.137.92.{}", host + u32::from(FIRST))
}

/// The name of the namespace of a host.
fn namespace(host: &str) -> String {
    format!("grappa-bench-{}-{host}", std::process::id())
}

/// Gives a host its address.
fn start(host: &str, number: u32) -> Result<()> {
    let address = format!("{}/24", address(number));
    run("ip", &["-n", host, "address", "add", &address, "dev", INTERFACE])?;
    for interface in ["lo", INTERFACE] {
        run("ip", &["-n", host, "link", "set", interface, "up"])?;
    }
    Ok(())
}

fn limit(namespace: &str, interface: &str, megabits: u32) -> Result<()> {
    let (rate, burst) = (format!("{megabits}mbit"), BURST_BYTES.to_string());
    let bucket = ["rate", &rate, "burst", &burst, "latency", &format!("{QUEUE_MS}ms")];
    let add = ["-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf"];
    run("tc", &[&add[..], &bucket].concat())
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_the_interface_are_read() {
        let counters = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n\
                lo:  100 1 0 0 0 0 0 0      100 1 0 0 0 0 0 0\n\
              eth0: 2000 3 0 0 0 0 0 0 70000000 9 0 0 0 0 0 0\n";
        assert_eq!(sent_by("eth0", counters), Some(70_000_000));
        assert_eq!(sent_by("eth1", counters), None);
    }

    #[test]
    fn a_command_keeps_its_arguments_and_its_environment() {
        let there = within("first", Command::new("echo").arg("a b").env("RANK", "0"));
        let args: Vec<_> = there.get_args().collect();
        assert_eq!(args, ["netns", "exec", "first", "echo", "a b"]);
        assert_eq!(there.get_envs().next(), Some(("RANK".as_ref(), Some("0".as_ref()))));
    }
}
