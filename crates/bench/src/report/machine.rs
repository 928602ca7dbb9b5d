//! The machine that a client ran on.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::{threads::cores, units::show_bytes};

/// What figures are worth nothing without.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

impl Machine {
    /// This one, as far as the kernel tells.
    pub(crate) fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = field(&cpuinfo, "model name").unwrap_or(std::env::consts::ARCH);
        let kib =
            field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            cpu: model.to_owned(),
            cpus: u32::try_from(cores()).unwrap_or(u32::MAX),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}

impl std::fmt::Display for Machine {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu, cpus, memory_bytes, kernel } = self;
        write!(f, "{cpu}, {cpus} CPUs, {}, {kernel}", show_bytes(*memory_bytes as f64))
    }
}

/// The value of the first line `NAME : VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\nMemTotal:  16 kB\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "MemTotal"), Some("16 kB"));
        assert_eq!(field(text, "MemFree"), None);
        assert!(Machine::here().cpus > 0);
    }
}
