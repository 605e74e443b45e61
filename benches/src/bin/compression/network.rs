//! Hosts with links of a given bandwidth: network namespaces around a bridge, with token buckets (`tc tbf`) at both ends of each link, or
//! with a [relay] between them if links have a delay.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use super::relay::{self, Links, Relay};

/// The interface of a host.
pub const INTERFACE: &str = "eth0";
/// The last byte of the first host's address.
const FIRST: u8 = 1;
/// A token bucket lets so many bytes pass at once.
const BURST_BYTES: u32 = 32 << 10;
/// Packets wait so long in a token bucket before they are dropped.
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
    /// Creates so many hosts.
    ///
    /// # Errors
    /// The reason why this machine does not permit it.
    pub fn new(hosts: u32, links: Links) -> Result<Self, String> {
        let mut network = Self {
            hosts: Vec::new(),
            switch: None,
            relay: None,
        };
        match links.delay.is_zero() {
            true => network.add_bridged(hosts, links.megabits)?,
            false => network.add_relayed(hosts, links)?,
        }
        Ok(network)
    }

    /// Adds hosts whose packets go through a TUN device to the relay.
    fn add_relayed(&mut self, hosts: u32, links: Links) -> Result<(), String> {
        let mut devices: Vec<File> = Vec::new();
        for number in 0..hosts {
            let host = self.add_host(number)?;
            let device = relay::device(&host, INTERFACE);
            devices.push(device.map_err(|error| format!("a TUN device cannot be created: {error}"))?);
            let mtu = relay::MTU.to_string();
            run("ip", &["-n", &host, "link", "set", INTERFACE, "mtu", &mtu])?;
            start(&host, number)?;
        }
        let relay = Relay::new(devices, FIRST, links).map_err(|error| error.to_string())?;
        self.relay = Some(relay);
        Ok(())
    }

    /// Adds hosts around a bridge.
    fn add_bridged(&mut self, hosts: u32, megabits: Option<u32>) -> Result<(), String> {
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
    fn add_host(&mut self, number: u32) -> Result<String, String> {
        let host = namespace(&number.to_string());
        run("ip", &["netns", "add", &host])?;
        self.hosts.push(host.clone());
        Ok(host)
    }

    /// A command on a host.
    pub fn on(&self, host: u32) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hosts[host as usize]]);
        command
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

/// The address of a host.
pub fn address(host: u32) -> String {
    format!("10.137.92.{}", host + u32::from(FIRST))
}

/// The name of the namespace of a host.
fn namespace(host: &str) -> String {
    format!("grappa-bench-{}-{host}", std::process::id())
}

/// Gives a host its address.
fn start(host: &str, number: u32) -> Result<(), String> {
    let address = format!("{}/24", address(number));
    run("ip", &["-n", host, "address", "add", &address, "dev", INTERFACE])?;
    for interface in ["lo", INTERFACE] {
        run("ip", &["-n", host, "link", "set", interface, "up"])?;
    }
    Ok(())
}

fn limit(namespace: &str, interface: &str, megabits: u32) -> Result<(), String> {
    let (rate, burst) = (format!("{megabits}mbit"), BURST_BYTES.to_string());
    let bucket = ["rate", &rate, "burst", &burst, "latency", &format!("{QUEUE_MS}ms")];
    let add = ["-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf"];
    run("tc", &[&add[..], &bucket].concat())
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program} cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
