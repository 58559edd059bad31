//! The standard metrics of a process, by the names that all Prometheus clients use.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug)]
struct Process;

pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Process));
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        // Without /proc there are no process metrics.
        let Ok(process) = procfs::process::Process::myself() else {
            return Ok(());
        };
        let Ok(stat) = process.stat() else {
            return Ok(());
        };
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
        let cpu = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        counter(
            &mut encoder,
            "process_cpu",
            "Total user and system CPU time spent.",
            &Unit::Seconds,
            cpu,
        )?;
        let resident = stat.rss.saturating_mul(procfs::page_size());
        let bytes = Some(&Unit::Bytes);
        gauge(
            &mut encoder,
            "process_resident_memory",
            "Resident memory size.",
            bytes,
            resident,
        )?;
        if let Ok(open) = process.fd_count() {
            let open = u64::try_from(open).unwrap_or(u64::MAX);
            let help = "Number of open file descriptors.";
            gauge(&mut encoder, "process_open_fds", help, None, open)?;
        }
        if let Ok(boot) = procfs::boot_time_secs() {
            let started = boot + stat.starttime / procfs::ticks_per_second();
            let help = "Start time of the process since the Unix epoch.";
            let unit = Some(&Unit::Seconds);
            gauge(&mut encoder, "process_start_time", help, unit, started)?;
        }
        Ok(())
    }
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: &Unit,
    value: f64,
) -> Result<(), Error> {
    let metric = ConstCounter::new(value);
    let kind = metric.metric_type();
    metric.encode(encoder.encode_descriptor(name, help, Some(unit), kind)?)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: u64,
) -> Result<(), Error> {
    let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    let kind = metric.metric_type();
    metric.encode(encoder.encode_descriptor(name, help, unit, kind)?)
}
