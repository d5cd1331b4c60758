// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Shows the GPUs of a guest, and the VM's use of them.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Parser;
use gpgpu_client::local_time;
use gpgpu_nvml::{
    Status,
    device::is_uuid,
    host::{self, Device, Known},
    sensors::Values,
    status,
    system::process_name,
    usage::processes,
};
use gpgpu_protocol::api::Sensor;

/// Shown for values that are unknown in a VM.
const NOT_AVAILABLE: &str = "[N/A]";
const MIB: u64 = 1 << 20;
/// The beginnings of nvidia-smi's fields of a physical GPU that are not available here.
const OF_GPUS: [&str; 17] = [
    "accounting.",
    "addressing_mode",
    "clocks",
    "driver_model.",
    "ecc.",
    "encoder.",
    "fabric.",
    "gom.",
    "gsp.",
    "inforom.",
    "mig.",
    "pci",
    "power",
    "protected_memory.",
    "remapped_rows.",
    "retired_pages.",
    "temperature.",
];

/// Show the virtual GPUs, and this VM's memory, utilization and processes on them
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Options {
    /// List the GPUs
    #[arg(short = 'L', long, conflicts_with = "query_gpu")]
    list_gpus: bool,

    /// Show these fields of each GPU, such as index,name,memory.used
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        requires = "format"
    )]
    query_gpu: Vec<String>,

    /// The format of the fields: csv, and then noheader and nounits
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', value_parser = ["csv", "noheader", "nounits"])]
    format: Vec<String>,

    /// Show only the GPUs with these numbers, UUIDs or PCI bus ids, separated by commas
    #[arg(short, long, value_name = "ID")]
    id: Option<String>,

    /// Repeat after this number of seconds, until interrupted
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    r#loop: Option<u64>,
}

/// The reason why nothing is shown.
enum Failure {
    Nvml(Status),
    Field(String),
    Id(String),
    Format,
    Output(io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Nvml(status)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    let message = match run(&Options::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        // The reader has closed its end.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(Failure::Output(error)) => error.to_string(),
        Err(Failure::Nvml(code)) => status::text(code).to_string_lossy().into_owned(),
        Err(Failure::Field(field)) => format!("unknown field {field}"),
        Err(Failure::Id(id)) => format!("no GPU {id}"),
        Err(Failure::Format) => "--format must include csv".to_owned(),
    };
    let _ = writeln!(io::stderr(), "gpgpu-smi: {message}");
    ExitCode::FAILURE
}

fn run(options: &Options) -> Result<(), Failure> {
    let has = |word: &str| options.format.iter().any(|format| format == word);
    if !options.query_gpu.is_empty() && !has("csv") {
        return Err(Failure::Format);
    }
    host::initialise()?;
    let known = host::known()?;
    let places = places(&known, options.id.as_deref())?;
    let mut is_first = true;
    loop {
        let mut text = String::new();
        if options.list_gpus {
            for &place in &places {
                let Device { info, uuid, .. } = known.device(place)?;
                text += &format!("GPU {place}: {} (UUID: {uuid})\n", info.name);
            }
        } else if options.query_gpu.is_empty() {
            text = table(&known, &places)?;
        } else {
            let fields: Vec<&str> = options.query_gpu.iter().map(|field| field.trim()).collect();
            if is_first && !has("noheader") {
                let header = |field: &&str| match unit(field) {
                    Some(unit) if !has("nounits") => format!("{field} [{unit}]"),
                    _ => (*field).to_owned(),
                };
                text = fields.iter().map(header).collect::<Vec<_>>().join(", ") + "\n";
            }
            for &place in &places {
                text += &query(&known, place, &fields, !has("nounits"))?;
            }
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        drop(out);
        is_first = false;
        match options.r#loop {
            Some(seconds) => std::thread::sleep(Duration::from_secs(seconds)),
            None => return Ok(()),
        }
    }
}

/// The GPUs to show.
fn places(known: &Known, id: Option<&str>) -> Result<Vec<usize>, Failure> {
    let Some(id) = id else {
        return Ok((0..known.devices.len()).collect());
    };
    // The order is the devices', as nvidia-smi's.
    let mut found = BTreeSet::new();
    for id in id.split(',').map(str::trim) {
        let address = host::Address::read(id);
        let is_it = |place: usize, device: &Device| {
            id.parse() == Ok(place) || is_uuid(&device.uuid, id) || address == Some(device.address)
        };
        let mut all = known.devices.iter().enumerate();
        let place = all.find(|(place, device)| is_it(*place, device));
        let (place, _) = place.ok_or_else(|| Failure::Id(id.to_owned()))?;
        found.insert(place);
    }
    Ok(found.into_iter().collect())
}

/// A time as nvidia-smi writes it, in the local time zone.
fn timestamp(time: SystemTime) -> String {
    let (local, milliseconds) = local_time(time);
    format!(
        "{:04}/{:02}/{:02} {:02}:{:02}:{:02}.{milliseconds:03}",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
    )
}

/// The unit of a field's values.
fn unit(field: &str) -> Option<&'static str> {
    match field {
        "memory.total" | "memory.used" | "memory.free" | "memory.reserved" => Some("MiB"),
        "utilization.gpu" | "utilization.memory" | "fan.speed" => Some("%"),
        _ => match sensor(field)?.unit() {
            "mW" => Some("W"),
            "MHz" => Some("MHz"),
            // Monitors read temperatures without a unit.
            _ => None,
        },
    }
}

/// The sensor that a field shows.
fn sensor(field: &str) -> Option<Sensor> {
    Some(match field {
        "temperature.gpu" => Sensor::Temperature,
        "temperature.memory" => Sensor::MemoryTemperature,
        "power.draw" | "power.draw.average" => Sensor::Power,
        "power.draw.instant" => Sensor::InstantPower,
        "power.limit" => Sensor::PowerLimit,
        "enforced.power.limit" => Sensor::EnforcedPowerLimit,
        "power.default_limit" => Sensor::DefaultPowerLimit,
        "power.min_limit" => Sensor::MinPowerLimit,
        "power.max_limit" => Sensor::MaxPowerLimit,
        "pstate" => Sensor::PerformanceState,
        "clocks.gr" | "clocks.current.graphics" => Sensor::GraphicsClock,
        "clocks.sm" | "clocks.current.sm" => Sensor::SmClock,
        "clocks.mem" | "clocks.current.memory" => Sensor::MemoryClock,
        "clocks.video" | "clocks.current.video" => Sensor::VideoClock,
        "clocks.max.gr" | "clocks.max.graphics" => Sensor::MaxGraphicsClock,
        "clocks.max.sm" => Sensor::MaxSmClock,
        "clocks.max.mem" | "clocks.max.memory" => Sensor::MaxMemoryClock,
        _ => return None,
    })
}

/// A sensor's value in a field's format; `None` if it is not known.
fn shown(values: &Values, sensor: Sensor) -> Option<String> {
    let value = values.get(sensor).ok()?;
    Some(match sensor {
        Sensor::PerformanceState => format!("P{value}"),
        _ if sensor.unit() == "mW" => {
            let hundredths = value.saturating_add(5) / 10;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
        _ => value.to_string(),
    })
}

/// The values of a GPU's sensors; empty if the host provides none.
///
/// # Errors
///
/// As [`host::sensors`], but for `NVML_ERROR_NOT_SUPPORTED`.
fn sensors(place: usize) -> Result<Values, Status> {
    match host::sensors(place) {
        Err(status::NOT_SUPPORTED) => Ok(Values::default()),
        other => other,
    }
}

/// The values of one GPU's fields, as a line.
fn query(known: &Known, place: usize, fields: &[&str], has_units: bool) -> Result<String, Failure> {
    let device = known.device(place)?;
    let needs = |start: &str| fields.iter().any(|field| field.starts_with(start));
    let usage = match needs("memory.") {
        true => host::usage(place)?,
        false => Default::default(),
    };
    let share = match needs("utilization.") {
        true => host::utilisation(place)?,
        false => 0,
    };
    let used = usage.used.min(usage.total);
    let values = match fields.iter().any(|field| sensor(field).is_some()) {
        true => sensors(place)?,
        false => Values::default(),
    };
    let value = |field: &&str| {
        let value = match *field {
            "timestamp" => timestamp(SystemTime::now()),
            "index" => place.to_string(),
            "count" => known.devices.len().to_string(),
            "name" | "gpu_name" => device.info.name.clone(),
            "uuid" | "gpu_uuid" => device.uuid.clone(),
            "pci.bus_id" | "gpu_bus_id" => device.address.text(8),
            "driver_version" => known.driver_version.clone(),
            "memory.total" => (usage.total / MIB).to_string(),
            "memory.used" => used.div_ceil(MIB).to_string(),
            "memory.reserved" => "0".to_owned(),
            "memory.free" => ((usage.total - used) / MIB).to_string(),
            "utilization.gpu" => share.to_string(),
            "compute_cap" => {
                let capability = device.capability();
                capability.map_or(NOT_AVAILABLE.into(), |(major, minor)| {
                    format!("{major}.{minor}")
                })
            }
            "compute_mode" => "Default".to_owned(),
            "persistence_mode" | "display_active" | "display_mode" => "Disabled".to_owned(),
            "utilization.memory" | "fan.speed" | "serial" | "gpu_serial" | "mig.mode.current"
            | "ecc.mode.current" | "vbios_version" => {
                return Ok(NOT_AVAILABLE.to_owned());
            }
            other => match sensor(other) {
                None if OF_GPUS.iter().any(|group| other.starts_with(group)) => {
                    return Ok(NOT_AVAILABLE.to_owned());
                }
                None => return Err(Failure::Field(other.to_owned())),
                Some(sensor) => match shown(&values, sensor) {
                    None => return Ok(NOT_AVAILABLE.to_owned()),
                    Some(value) => value,
                },
            },
        };
        Ok(match unit(field) {
            Some(unit) if has_units => format!("{value} {unit}"),
            _ => value,
        })
    };
    let values: Vec<String> = fields.iter().map(value).collect::<Result<_, Failure>>()?;
    Ok(values.join(", ") + "\n")
}

/// A text cut or padded to exactly this number of characters.
fn cut(text: &str, width: usize) -> String {
    // A process chooses its name: control characters would act on the terminal.
    let shown = |of: char| if of.is_control() { '?' } else { of };
    let text: String = text.chars().map(shown).take(width).collect();
    format!("{text:width$}")
}

/// The table's lines for a GPU's sensors; empty if no value is known.
fn condition(values: &Values) -> String {
    let parts = [
        ("", Sensor::Temperature, " °C"),
        ("", Sensor::PerformanceState, ""),
        ("", Sensor::Power, " W"),
        ("of ", Sensor::EnforcedPowerLimit, " W"),
        ("SM ", Sensor::SmClock, " MHz"),
        ("memory ", Sensor::MemoryClock, " MHz"),
    ];
    let parts = parts.iter().filter_map(|(before, sensor, unit)| {
        let value = shown(values, *sensor)?;
        Some(format!("{before}{value}{unit}"))
    });
    parts.collect::<Vec<_>>().join("  ")
}

/// The default table.
fn table(known: &Known, places: &[usize]) -> Result<String, Failure> {
    let (thin, thick) = ("-".repeat(77), "=".repeat(77));
    let cuda = known.cuda_version;
    let versions = format!(
        "virtio-gpgpu {}   Driver {}   CUDA {}.{}",
        env!("CARGO_PKG_VERSION"),
        known.driver_version,
        cuda / 1000,
        cuda % 1000 / 10
    );
    let mut text = format!("+{thin}+\n| {} |\n|{thin}|\n", cut(&versions, 75));
    let row = |[name, bus, memory, share]: [&str; 4]| {
        let (name, bus) = (cut(name, 28), cut(bus, 16));
        format!("| {name}  {bus}  {memory:>19}  {share:>6} |\n")
    };
    text += &row(["GPU  Name", "Bus-Id", "Memory", "Util"]);
    text += &format!("|{thick}|\n");
    let mut holders = Vec::new();
    for &place in places {
        let device = known.device(place)?;
        let share = host::utilisation(place)?;
        let usage = host::usage(place)?;
        let used = usage.used.min(usage.total).div_ceil(MIB);
        text += &row([
            &format!("{place:>3}  {}", device.info.name),
            &device.address.text(8),
            &format!("{used}MiB / {}MiB", usage.total / MIB),
            &format!("{share}%"),
        ]);
        let condition = condition(&sensors(place)?);
        if !condition.is_empty() {
            text += &format!("|      {} |\n", cut(&condition, 70));
        }
        for process in processes(usage) {
            holders.push((place, process));
        }
    }
    text += &format!(
        "+{thin}+\n| {} |\n|{thick}|\n",
        cut("Processes of this VM", 75)
    );
    if holders.is_empty() {
        text += &format!("| {} |\n", cut("No process has GPU memory", 75));
    }
    for (place, process) in holders {
        let name = process_name(process.pid).unwrap_or_else(|| "?".to_owned());
        let memory = process.bytes.div_ceil(MIB);
        let (pid, name) = (process.pid, cut(&name, 45));
        text += &format!("| {place:>3}  {pid:>8}  {name}  {memory:>10}MiB |\n");
    }
    Ok(text + &format!("+{thin}+\n"))
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::SensorValue;

    use super::*;

    fn known() -> Known {
        Known {
            devices: vec![Device::default()],
            cuda_version: 13000,
            driver_version: "580.65.06".to_owned(),
        }
    }

    #[test]
    fn fields_that_need_no_host_are_shown_and_unknown_ones_refused() {
        let fields = [
            "index",
            "count",
            "driver_version",
            "fan.speed",
            "pcie.link.gen.current",
        ];
        let line = query(&known(), 0, &fields, true).ok();
        let expected = "0, 1, 580.65.06, [N/A], [N/A]\n";
        assert_eq!(line.as_deref(), Some(expected));
        let refused = query(&known(), 0, &["index", "colour"], true);
        assert!(matches!(refused, Err(Failure::Field(field)) if field == "colour"));
    }

    #[test]
    fn several_devices_are_chosen_in_their_own_order() {
        let mut known = known();
        known.devices.push(Device {
            uuid: "GPU-1".to_owned(),
            ..Device::default()
        });
        let chosen = |ids| places(&known, Some(ids)).ok();
        assert_eq!(chosen("1, 0"), Some(vec![0, 1]));
        assert_eq!(chosen("GPU-1"), Some(vec![1]));
        assert_eq!(chosen("0,7"), None);
    }

    #[test]
    fn sensors_are_shown_in_the_units_that_monitors_read() {
        let value = |sensor: Sensor, value| SensorValue {
            sensor: sensor.number(),
            value,
        };
        let values = Values::from(vec![
            value(Sensor::Temperature, 41),
            value(Sensor::Power, 71_254),
            value(Sensor::EnforcedPowerLimit, 300_000),
            value(Sensor::PerformanceState, 2),
            value(Sensor::SmClock, 1400),
            // A newer host sends this sensor.
            SensorValue {
                sensor: 9999,
                value: 1,
            },
        ]);
        let show = |sensor| shown(&values, sensor);
        assert_eq!(show(Sensor::Temperature).as_deref(), Some("41"));
        assert_eq!(show(Sensor::Power).as_deref(), Some("71.25"));
        assert_eq!(show(Sensor::PerformanceState).as_deref(), Some("P2"));
        assert_eq!(show(Sensor::MemoryClock), None);
        assert_eq!(unit("power.draw"), Some("W"));
        assert_eq!(unit("clocks.sm"), Some("MHz"));
        assert_eq!(unit("temperature.gpu"), None);
        let line = "41 °C  P2  71.25 W  of 300.00 W  SM 1400 MHz";
        assert_eq!(condition(&values), line);
        assert_eq!(condition(&Values::default()), "");
    }

    #[test]
    fn a_gpu_is_found_by_number_uuid_and_address() {
        let mut known = known();
        known.devices.push(Device {
            uuid: "GPU-1".to_owned(),
            address: host::Address {
                bus: 0x3b,
                ..Default::default()
            },
            ..Device::default()
        });
        for id in ["1", "GPU-1", "0000:3b:00.0"] {
            assert_eq!(places(&known, Some(id)).ok(), Some(vec![1]), "{id}");
        }
        assert!(matches!(places(&known, Some("2")), Err(Failure::Id(_))));
        assert_eq!(places(&known, None).ok(), Some(vec![0, 1]));
    }

    #[test]
    fn a_row_is_as_wide_as_the_frame() {
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("é", 3), "é  ");
    }
}
