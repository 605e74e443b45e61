//! How stores are made, and the disk that they need.

use anyhow::{Result, ensure};
use grappa_console::ByteSize;
use grappa_io::machine::free_disk_bytes;

use crate::{
    graph::Graph,
    numbers::{Line, Numbers, Section},
    options::Row,
    plan::Plan,
    stand::Stand,
};

/// A generator gets this share of the budget, or at least this much.
const GENERATOR_SHARE: f64 = 2.0 / 3.0;
const GENERATOR_BYTES_MIN: u64 = 256 << 20;

impl Stand<'_> {
    /// Says how much disk the rows need, and fails if that is not free.
    pub fn check_space(&self, rows: &[Row]) -> Result<()> {
        let needed = ByteSize(self.disk_bytes(rows)? as u64);
        let free = ByteSize(free_disk_bytes(&self.args.files.work).unwrap_or(u64::MAX));
        eprintln!("{}: needs {needed} of disk; {free} are free", self.name());
        ensure!(
            needed.0 <= free.0,
            "{} needs {needed} of disk, and {free} are free in {}: choose a smaller --scale, or other --rows",
            self.name(),
            self.args.files.work.display()
        );
        Ok(())
    }

    /// Disk in bytes for the store, and for what the rows add to it.
    fn disk_bytes(&self, rows: &[Row]) -> Result<f64> {
        let mut most = 0.0f64;
        for &row in rows {
            let mut options = self.graph.planned(self.args);
            if self.graph == Graph::Stored {
                options.push(self.memory_option());
                options.extend(self.planned_training(row));
            }
            let plan = self.plan(&options)?;
            let mut bytes = self.graph.made() * plan.number("bytes/total")?;
            if self.graph == Graph::Stored {
                // Aggregates stay for the next row.
                bytes += plan.number("bytes/features")? + plan.number("train/disk/scratch")?;
            }
            most = most.max(bytes);
        }
        Ok(most)
    }

    pub fn make(&self) -> Result<Section> {
        let plan = self.plan(&self.graph.planned(self.args))?;
        let memory = ((GENERATOR_SHARE * self.graph.memory(self.args) as f64) as u64).max(GENERATOR_BYTES_MIN);
        let mut command = self.program("grappa-gen");
        self.graph.generate(self.args, &mut command);
        command.args(["--memory", &memory.to_string(), "--json", "--quiet"]);
        command.arg("--out").arg(self.store());
        let run = self.run_cold(command)?;
        let mut section = Section::new(&self.name());
        let written = Some(self.graph.made() * plan.number("bytes/total")?);
        section.lines.push(Line::program("generate", &run, Numbers { written, ..Numbers::default() }));
        if self.graph == Graph::Procedural {
            self.check(&plan, &mut section)?;
        }
        section.notes.push(format!(
            "{:.1} M edges, {} on disk. The generator has `--memory {}`.",
            run.0.number("edges")? / 1e6,
            ByteSize(run.0.count("bytes_on_disk")?),
            ByteSize(memory)
        ));
        Ok(section)
    }

    /// Verifies and repartitions the store.
    fn check(&self, plan: &Plan, section: &mut Section) -> Result<()> {
        let mut verify = self.program("grappa-store");
        verify.args(["--json", "--quiet", "verify"]).arg(self.store());
        let read = Some(plan.number("bytes/total")?);
        let planned = Numbers { read, ..Numbers::default() };
        section.lines.push(Line::program("verify", &self.run_cold(verify)?, planned));
        let mut repartition = self.program("grappa-store");
        repartition.args(["--json", "--quiet", "repartition", "--partitions", "64"]);
        repartition.arg(self.store());
        section.lines.push(Line::program("repartition", &self.run_cold(repartition)?, Numbers::default()));
        Ok(())
    }
}
