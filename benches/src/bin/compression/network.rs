//! Hosts with links of a given bandwidth: network namespaces around a bridge, with token buckets (`tc tbf`) at both ends of each link.

use std::process::{Command, Stdio};

/// The interface of a host.
pub const INTERFACE: &str = "eth0";
/// A token bucket lets so many bytes pass at once.
const BURST_BYTES: u32 = 32 << 10;
/// Packets wait so long in a token bucket before they are dropped.
const QUEUE_MS: u32 = 400;

/// Several hosts, removed when they are dropped.
#[derive(Debug)]
pub struct Network {
    switch: String,
    hosts: Vec<String>,
}

impl Network {
    /// Creates so many hosts. `megabits` per second pass over each link, in each direction; without them, links have no limit.
    ///
    /// # Errors
    /// The reason why this machine does not permit it.
    pub fn new(hosts: u32, megabits: Option<u32>) -> Result<Self, String> {
        let name = |host: String| format!("grappa-bench-{}-{host}", std::process::id());
        let mut network = Self {
            switch: name("switch".to_owned()),
            hosts: Vec::new(),
        };
        let switch = network.switch.clone();
        run("ip", &["netns", "add", &switch])?;
        run("ip", &["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        run("ip", &["-n", &switch, "link", "set", "bridge", "up"])?;
        for number in 0..hosts {
            let (host, port) = (name(number.to_string()), format!("port{number}"));
            run("ip", &["netns", "add", &host])?;
            network.hosts.push(host.clone());
            let add = ["-n", &host, "link", "add", INTERFACE, "type", "veth"];
            run("ip", &[&add[..], &["peer", "name", &port, "netns", &switch]].concat())?;
            run("ip", &["-n", &switch, "link", "set", &port, "master", "bridge"])?;
            let address = format!("{}/24", address(number));
            run("ip", &["-n", &host, "address", "add", &address, "dev", INTERFACE])?;
            for (namespace, interface) in [(&host, "lo"), (&host, INTERFACE), (&switch, port.as_str())] {
                run("ip", &["-n", namespace, "link", "set", interface, "up"])?;
            }
            if let Some(megabits) = megabits {
                limit(&host, INTERFACE, megabits)?;
                limit(&switch, &port, megabits)?;
            }
        }
        Ok(network)
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
        for name in self.hosts.iter().chain([&self.switch]) {
            // A bench that failed has its own message.
            let _ = run("ip", &["netns", "delete", name]);
        }
    }
}

/// The address of a host.
pub fn address(host: u32) -> String {
    format!("10.137.92.{}", host + 1)
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
