// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's answers, and the connection for queries.
//!
//! A connection costs the host a process, and often a context. So queries use the process's own connection, which is
//! libcuda's, if CUDA is initialised. If it is not and cannot be (a forked child), there is another connection while
//! [`initialise`] reads the list of GPUs, and again from the first query about the VM's use until the last
//! [`shutdown`].

use std::{
    mem::ManuallyDrop,
    sync::Arc,
    time::{Duration, Instant},
};

use gpgpu_client::{Connection, sister::Sister};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{DeviceInfo, DeviceUsage, Hello, Request, reply, request},
    cuda::*,
};

use crate::{Result, Status, sensors::Values, status};

/// A share of the GPU's time is taken over as long as this at least.
const SHORTEST: Duration = Duration::from_millis(100);
/// The maximum: earlier time is of no interest.
const LONGEST: Duration = Duration::from_secs(2);

/// The address of a device on its host's PCI bus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device.
    pub device: u32,
}

impl Address {
    /// Reads an address such as `0000:3b:00.0`; the domain and the function may be missing.
    pub fn read(text: &str) -> Option<Self> {
        let (text, function) = text.split_once('.').unwrap_or((text, "0"));
        let number = |part: &str| u32::from_str_radix(part, 16).ok();
        number(function).filter(|function| *function == 0)?;
        let mut parts = text.rsplit(':');
        let device = number(parts.next()?)?;
        let bus = number(parts.next()?)?;
        let domain = parts.next().map_or(Some(0), number)?;
        parts.next().is_none().then_some(Self {
            domain,
            bus,
            device,
        })
    }

    /// The address with a domain of so many digits, as NVML writes it.
    pub fn text(self, digits: usize) -> String {
        let Self {
            domain,
            bus,
            device,
        } = self;
        format!("{domain:0digits$X}:{bus:02X}:{device:02X}.0")
    }
}

/// A GPU's UUID as NVML writes it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = "GPU-".to_owned();
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A GPU.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// CUDA's properties of it.
    pub info: DeviceInfo,
    /// Its address on the PCI bus.
    pub address: Address,
    /// [`uuid_text`].
    pub uuid: String,
}

impl Device {
    /// An attribute as CUDA has it.
    ///
    /// # Errors
    ///
    /// `NVML_ERROR_NOT_SUPPORTED` if it has none.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        let answer = self.info.attributes.get(attribute as usize);
        let answer = answer.filter(|answer| answer.result == CUDA_SUCCESS);
        answer
            .map(|answer| answer.value)
            .ok_or(status::NOT_SUPPORTED)
    }

    /// The compute capability.
    ///
    /// # Errors
    ///
    /// As [`Device::attribute`].
    pub fn capability(&self) -> Result<(i32, i32)> {
        Ok((
            self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }
}

/// The constant properties.
#[derive(Debug, Default)]
pub struct Known {
    /// The GPUs, in the order of their addresses, as NVML has them.
    pub devices: Vec<Device>,
    /// `cuDriverGetVersion` of the host.
    pub cuda_version: i32,
    /// The version of the host's driver.
    pub driver_version: String,
}

impl Known {
    /// From a hello, and the host's answer about its driver's version, which may be missing.
    pub fn new(hello: Hello, driver_version: String) -> Self {
        let device = |info: DeviceInfo| Device {
            address: Address::read(&info.pci_bus_id).unwrap_or_default(),
            uuid: uuid_text(&info.uuid),
            info,
        };
        let mut devices: Vec<_> = hello.devices.into_iter().map(device).collect();
        devices.sort_by_key(|device| device.address);
        let cuda_version = hello.driver_version;
        let driver_version = match driver_version.is_empty() {
            // The host does not say: the version of CUDA is one of the driver too.
            true => format!("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10),
            false => driver_version,
        };
        Self {
            devices,
            cuda_version,
            driver_version,
        }
    }

    /// A device by its place.
    ///
    /// # Errors
    ///
    /// `NVML_ERROR_INVALID_ARGUMENT` if there is none.
    pub fn device(&self, place: usize) -> Result<&Device> {
        self.devices.get(place).ok_or(status::INVALID_ARGUMENT)
    }
}

/// The connection for queries.
enum Way<'a> {
    /// libcuda, and by it the process's connection.
    Process(Sister),
    /// A connection of this library's.
    Own(&'a Connection),
}

type Answer<T> = std::result::Result<T, CUresult>;

impl Way<'_> {
    fn call<R: Request>(&self, request: &R) -> Answer<R::Reply> {
        match self {
            Self::Process(sister) => sister.ask(request),
            Self::Own(connection) => connection.call(request),
        }
    }

    fn has(&self, op: u16) -> Answer<bool> {
        match self {
            Self::Process(sister) => sister.has(op),
            Self::Own(connection) => Ok(connection.has(op)),
        }
    }
}

/// The devices' UUIDs by the number that the host has for them on a connection.
type Numbers = Vec<[u8; 16]>;

fn numbers(hello: &Hello) -> Numbers {
    hello.devices.iter().map(|device| device.uuid).collect()
}

/// A connection that is kept.
struct Link {
    connection: ManuallyDrop<Connection>,
    devices: Numbers,
    process: u32,
}

impl Drop for Link {
    fn drop(&mut self) {
        // In a forked child it is the parent's still.
        if self.process == std::process::id() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.connection) };
        }
    }
}

/// A device's total time with work, as measured at a point in time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    busy_ns: u64,
    /// The share before, in percent.
    share: u32,
}

#[derive(Default)]
struct State {
    initialised: u32,
    known: Option<Arc<Known>>,
    link: Option<Link>,
    /// The devices of the process's connection.
    numbers: Option<Numbers>,
    samples: Vec<Option<Sample>>,
    /// [`is_linked`], once that was asked.
    is_linked: Option<bool>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with_state<T>(body: impl FnOnce(&mut State) -> T) -> T {
    let mut state: MutexGuard<'_, Option<State>> = STATE.lock();
    body(state.get_or_insert_default())
}

/// NVML's code for the result of a call to the host.
pub(crate) fn code(of: CUresult) -> Status {
    match of {
        CUDA_ERROR_NO_DEVICE => status::DRIVER_NOT_LOADED,
        CUDA_ERROR_OUT_OF_MEMORY => status::INSUFFICIENT_RESOURCES,
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => status::LIB_RM_VERSION_MISMATCH,
        CUDA_ERROR_NOT_SUPPORTED => status::NOT_SUPPORTED,
        CUDA_ERROR_INVALID_DEVICE | CUDA_ERROR_INVALID_VALUE => status::INVALID_ARGUMENT,
        _ => status::UNKNOWN,
    }
}

/// By the process's connection; `None` if there is none that knows all devices.
fn learn_by(sister: Sister) -> Option<Known> {
    if !sister.sees_all().ok()? {
        return None;
    }
    let hello = sister.ask(&request::gpgpuHello { hello: true }).ok()?.hello;
    Some(Known::new(hello, driver_version(&Way::Process(sister))))
}

/// The version of the host's driver; an older host does not say.
fn driver_version(way: &Way<'_>) -> String {
    let version = way.call(&request::gpgpuDriverVersion { version: true });
    version.map(|reply| reply.version).unwrap_or_default()
}

fn learn() -> Result<Known> {
    if let Some(known) = Sister::loaded().and_then(learn_by) {
        return Ok(known);
    }
    let (connection, hello) = Connection::open_plain().map_err(code)?;
    // The host makes a context for a client ahead of its need, and counts it. This has it given up before the
    // connection ends, so that no later question finds it.
    let (dev, usage) = (0, true);
    let _ = connection.call(&request::gpgpuDeviceUsage { dev, usage });
    Ok(Known::new(hello, driver_version(&Way::Own(&connection))))
}

/// `nvmlInit`: each needs its own [`shutdown`].
///
/// # Errors
///
/// `NVML_ERROR_DRIVER_NOT_LOADED` where there is no device; others where the host refuses this process.
pub fn initialise() -> Result {
    with_state(|state| {
        if state.initialised == 0 {
            state.known = Some(Arc::new(learn()?));
            state.samples.clear();
            state.numbers = None;
            state.is_linked = None;
        }
        state.initialised = state
            .initialised
            .checked_add(1)
            .ok_or(status::INSUFFICIENT_RESOURCES)?;
        Ok(())
    })
}

/// `nvmlShutdown`.
///
/// # Errors
///
/// `NVML_ERROR_UNINITIALIZED` where nothing is to be shut down.
pub fn shutdown() -> Result {
    with_state(|state| {
        let left = state.initialised.checked_sub(1);
        state.initialised = left.ok_or(status::UNINITIALIZED)?;
        if state.initialised == 0 {
            state.link = None;
        }
        Ok(())
    })
}

/// The constant properties.
///
/// # Errors
///
/// `NVML_ERROR_UNINITIALIZED`.
pub fn known() -> Result<Arc<Known>> {
    with_state(|state| match &state.known {
        Some(known) if state.initialised > 0 => Ok(Arc::clone(known)),
        _ => Err(status::UNINITIALIZED),
    })
}

impl State {
    fn link(&mut self) -> Result<&Link> {
        let process = std::process::id();
        if self
            .link
            .as_ref()
            .is_some_and(|link| link.process != process)
        {
            self.link = None;
        }
        if self.link.is_none() {
            let (connection, hello) = Connection::open_plain().map_err(code)?;
            self.link = Some(Link {
                connection: ManuallyDrop::new(connection),
                devices: numbers(&hello),
                process,
            });
        }
        self.link.as_ref().ok_or(status::UNKNOWN)
    }
}

/// The numbers of these devices.
///
/// # Errors
///
/// `NVML_ERROR_GPU_IS_LOST` if one is not there.
fn numbered(known: &Known, places: &[usize], devices: &Numbers) -> Result<Vec<i32>> {
    let number = |place: &usize| {
        let uuid = known.device(*place)?.info.uuid;
        let number = devices.iter().position(|of| *of == uuid);
        number
            .map(|number| number as i32)
            .ok_or(status::GPU_IS_LOST)
    };
    places.iter().map(number).collect()
}

impl State {
    /// Queries by the process's connection; `None` if there is no working one, or the program does not see all these
    /// devices. A query that the host does not support would not be supported on another connection either.
    fn ask_process<T>(
        &mut self,
        known: &Known,
        places: &[usize],
        question: impl Fn(&Way<'_>, &[i32]) -> Answer<T>,
    ) -> Option<Result<T>> {
        let sister = Sister::loaded()?;
        let devices = match &self.numbers {
            Some(devices) => devices,
            None => {
                let hello = sister.ask(&request::gpgpuHello { hello: true }).ok()?.hello;
                self.numbers.insert(numbers(&hello))
            }
        };
        let numbers = numbered(known, places, devices).ok()?;
        let answer = match question(&Way::Process(sister), &numbers) {
            Err(CUDA_ERROR_NOT_SUPPORTED) => Err(status::NOT_SUPPORTED),
            answer => Ok(answer.ok()?),
        };
        // One of this library's own is not needed any more.
        self.link = None;
        Some(answer)
    }
}

/// Asks the host about devices, which it knows by other numbers than NVML; once more where the connection was lost.
fn ask<T>(places: &[usize], question: impl Fn(&Way<'_>, &[i32]) -> Answer<T>) -> Result<T> {
    let known = known()?;
    with_state(|state| {
        if let Some(answer) = state.ask_process(&known, places, &question) {
            return answer;
        }
        let mut last = status::UNKNOWN;
        for _ in 0..2 {
            let link = state.link()?;
            let numbers = numbered(&known, places, &link.devices)?;
            last = match question(&Way::Own(&link.connection), &numbers) {
                Ok(answer) => return Ok(answer),
                Err(of) => code(of),
            };
            if last == status::NOT_SUPPORTED {
                break;
            }
            state.link = None;
        }
        Err(last)
    })
}

/// The VM's limit and use of a device.
///
/// # Errors
///
/// `NVML_ERROR_NOT_SUPPORTED` where the host is older than this.
pub fn usage(place: usize) -> Result<DeviceUsage> {
    ask(&[place], |way, numbers| {
        let question = request::gpgpuDeviceUsage {
            dev: numbers[0],
            usage: true,
        };
        Ok(way.call(&question)?.usage)
    })
}

/// The values of a device's sensors.
///
/// # Errors
///
/// `NVML_ERROR_NOT_SUPPORTED` where the VM may not read them, or the host is older than this.
pub fn sensors(place: usize) -> Result<Values> {
    ask(&[place], |way, numbers| {
        ask_sensors(numbers[0], |op| way.has(op), |question| way.call(question))
    })
}

/// Asks a host for the sensors of a device, if it has the operation: its own refusal would be logged, and monitors ask
/// again and again.
pub(crate) fn ask_sensors(
    dev: i32,
    has: impl FnOnce(u16) -> Answer<bool>,
    call: impl FnOnce(&request::gpgpuDeviceSensors) -> Answer<reply::gpgpuDeviceSensors>,
) -> Answer<Values> {
    if !has(request::gpgpuDeviceSensors::OP)? {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let sensors = true;
    let question = request::gpgpuDeviceSensors { dev, sensors };
    Ok(call(&question)?.sensors.into())
}

/// Whether a device can reach another's memory. On a host on which processes cannot share memory it cannot: NCCL relies
/// on both.
///
/// # Errors
///
/// The host's.
pub fn reaches(from: usize, to: usize) -> Result<bool> {
    ask(&[from, to], |way, numbers| {
        if !way.has(request::gpgpuIpcOpen::OP)? {
            return Ok(false);
        }
        let question = request::cuDeviceCanAccessPeer {
            dev: numbers[0],
            peerDev: numbers[1],
            canAccessPeer: true,
        };
        Ok(way.call(&question)?.canAccessPeer != 0)
    })
}

/// Whether atomic operations pass natively between all devices, of which there are several.
///
/// # Errors
///
/// The host's.
pub fn is_linked() -> Result<bool> {
    if let Some(is_linked) = with_state(|state| state.is_linked) {
        return Ok(is_linked);
    }
    let count = known()?.devices.len();
    let mut is_linked = count > 1;
    for (from, to) in pairs(count) {
        is_linked = is_linked && reaches(from, to)? && has_atomics(from, to)?;
    }
    with_state(|state| state.is_linked = Some(is_linked));
    Ok(is_linked)
}

/// The pairs of so many devices.
pub(crate) fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |from| (from + 1..count).map(move |to| (from, to)))
}

/// Whether a device's atomic operations on another's memory are native.
fn has_atomics(from: usize, to: usize) -> Result<bool> {
    ask(&[from, to], |way, numbers| {
        let question = request::cuDeviceGetP2PAttribute {
            value: true,
            attrib: CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
            srcDevice: numbers[0],
            dstDevice: numbers[1],
        };
        Ok(way.call(&question)?.value != 0)
    })
}

/// The share of a time in which the device had work, in percent.
pub(crate) fn share(busy_ns: u64, of: Duration) -> u32 {
    let of = of.as_nanos().max(1);
    (u128::from(busy_ns) * 100 / of).min(100) as u32
}

/// The part of the time in which a device had work of the VM, in percent: since the last such call, if that was up to
/// two seconds ago. Otherwise the call takes a tenth of a second to measure it.
///
/// # Errors
///
/// As [`usage`].
pub fn utilisation(place: usize) -> Result<u32> {
    let last = with_state(|state| state.samples.get(place).copied().flatten());
    let last = last.filter(|last| last.at.elapsed() <= LONGEST);
    let before = match last {
        Some(last) if last.at.elapsed() < SHORTEST => return Ok(last.share),
        Some(last) => last,
        None => {
            let before = Sample {
                at: Instant::now(),
                busy_ns: usage(place)?.busy_ns,
                share: 0,
            };
            std::thread::sleep(SHORTEST);
            before
        }
    };
    let now = Sample {
        at: Instant::now(),
        busy_ns: usage(place)?.busy_ns,
        share: 0,
    };
    let busy = now.busy_ns.saturating_sub(before.busy_ns);
    let share = share(busy, now.at - before.at);
    with_state(|state| {
        if state.samples.len() <= place {
            state.samples.resize(place + 1, None);
        }
        state.samples[place] = Some(Sample { share, ..now });
    });
    Ok(share)
}
