// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries of the host, and the connection for them.
//!
//! A connection costs the host a process, and often a context. So queries use the process's own connection, libcuda's,
//! if CUDA is initialised. If it is not, or cannot be (in a forked child), this library opens its own connection. That
//! connection exists while [`initialise`] reads the list of GPUs, and again from the first query about the VM's use
//! until the last [`shutdown`].

use std::{
    mem::ManuallyDrop,
    sync::Arc,
    time::{Duration, Instant},
};

use gpgpu_client::{Connection, sister::Sister, transport};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{DeviceInfo, DeviceUsage, Hello, Request, reply, request},
    cuda::*,
};

use crate::{Result, Status, sensors::Values, status};

/// The shortest time over which a share of the GPU's time is measured.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest time: older work is not of interest.
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
    /// Parses an address such as `0000:3b:00.0`; the domain and the function may be missing.
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

    /// The address in NVML's format, with this number of digits for the domain.
    pub fn text(self, digits: usize) -> String {
        let Self {
            domain,
            bus,
            device,
        } = self;
        format!("{domain:0digits$X}:{bus:02X}:{device:02X}.0")
    }
}

/// A GPU's UUID in NVML's format.
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
    /// Its properties from CUDA.
    pub info: DeviceInfo,
    /// Its address on the PCI bus.
    pub address: Address,
    /// Its UUID, formatted by [`uuid_text`].
    pub uuid: String,
}

impl Device {
    /// An attribute with CUDA's value.
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
    /// The GPUs in NVML's order, which is that of their addresses.
    pub devices: Vec<Device>,
    /// `cuDriverGetVersion` of the host.
    pub cuda_version: i32,
    /// The version of the host's driver.
    pub driver_version: String,
}

impl Known {
    /// The properties from a hello and from the host's answer about its driver's version, which may be empty.
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
            // An older host does not report it, so use the version of CUDA that its driver supports.
            true => format!("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10),
            false => driver_version,
        };
        Self {
            devices,
            cuda_version,
            driver_version,
        }
    }

    /// A device by its index.
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
    /// libcuda, and through it the process's connection.
    Process(Sister),
    /// This library's own connection.
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

/// The UUIDs of a connection's devices, indexed by the host's numbers.
type Numbers = Vec<[u8; 16]>;

fn numbers(hello: &Hello) -> Numbers {
    hello.devices.iter().map(|device| device.uuid).collect()
}

/// An open connection.
struct Link {
    connection: ManuallyDrop<Connection>,
    devices: Numbers,
    process: u32,
}

impl Drop for Link {
    fn drop(&mut self) {
        // A forked child inherits its parent's connection, and must not use it.
        if self.process == std::process::id() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.connection) };
        }
    }
}

/// A device's total busy time, as measured at a point in time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    busy_ns: u64,
    /// The previous share, in percent.
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
    /// The result of [`is_linked`], once it is known.
    is_linked: Option<bool>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

gpgpu_client::held_over_forks! {
    /// Lets forked children use this library, whatever other threads do at that time.
    fn watch_forks() for STATE: Option<State>
}

fn with_state<T>(body: impl FnOnce(&mut State) -> T) -> T {
    let mut state: MutexGuard<'_, Option<State>> = STATE.lock();
    body(state.get_or_insert_default())
}

/// Opens a connection of NVML's own.
fn open() -> Result<(Connection, Hello)> {
    Connection::open_plain().map_err(|failed| match failed {
        CUDA_ERROR_NO_DEVICE if transport::is_forbidden() => status::NO_PERMISSION,
        failed => code(failed),
    })
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

/// Reads the properties through the process's connection; `None` if that does not exist or does not know all devices.
fn learn_by(sister: Sister) -> Option<Known> {
    if !sister.sees_all().ok()? {
        return None;
    }
    let hello = sister.ask(&request::gpgpuHello { hello: true }).ok()?.hello;
    Some(Known::new(hello, driver_version(&Way::Process(sister))))
}

/// The version of the host's driver; empty if the host is too old to report it.
fn driver_version(way: &Way<'_>) -> String {
    let version = way.call(&request::gpgpuDriverVersion { version: true });
    version.map(|reply| reply.version).unwrap_or_default()
}

fn learn() -> Result<Known> {
    if let Some(known) = Sister::loaded().and_then(learn_by) {
        return Ok(known);
    }
    let (connection, hello) = open()?;
    // The host makes a context for a client in advance, and charges it. This query makes the host give the context up
    // before the connection ends, so that later queries do not count it.
    let (dev, usage) = (0, true);
    let _ = connection.call(&request::gpgpuDeviceUsage { dev, usage });
    Ok(Known::new(hello, driver_version(&Way::Own(&connection))))
}

/// `nvmlInit`: each call needs its own [`shutdown`].
///
/// # Errors
///
/// `NVML_ERROR_DRIVER_NOT_LOADED` if there is no device; other codes if the host refuses this process.
pub fn initialise() -> Result {
    watch_forks();
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
/// `NVML_ERROR_UNINITIALIZED` if NVML is not initialised.
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
            let (connection, hello) = open()?;
            self.link = Some(Link {
                connection: ManuallyDrop::new(connection),
                devices: numbers(&hello),
                process,
            });
        }
        self.link.as_ref().ok_or(status::UNKNOWN)
    }
}

/// The host's numbers of these devices.
///
/// # Errors
///
/// `NVML_ERROR_GPU_IS_LOST` if a device is missing.
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
    /// Queries through the process's connection. `None` if there is no working connection, or if the program does not
    /// see all these devices. A query that the host does not support would fail on another connection, too.
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
        // This library's own connection is not needed any more.
        self.link = None;
        Some(answer)
    }
}

/// Queries the host about devices, for which it has other numbers than NVML; retries once if the connection was lost.
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
/// `NVML_ERROR_NOT_SUPPORTED` if the host is too old.
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
/// `NVML_ERROR_NOT_SUPPORTED` if the VM may not read them, or the host is too old.
pub fn sensors(place: usize) -> Result<Values> {
    ask(&[place], |way, numbers| {
        ask_sensors(numbers[0], |op| way.has(op), |question| way.call(question))
    })
}

/// Queries a host for a device's sensors, if it supports the operation. Otherwise the host's refusal would be logged,
/// and monitors repeat the query.
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

/// Whether a device can access another's memory. NCCL needs shared memory between processes, too, so the answer is no
/// if the host does not support that.
///
/// # Errors
///
/// The host's errors.
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

/// Whether there are several devices, and atomic operations between all of them are native.
///
/// # Errors
///
/// The host's errors.
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

/// The ordered pairs of `count` devices.
pub(crate) fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |from| (from + 1..count).map(move |to| (from, to)))
}

/// Whether a device's atomic operations on another's memory are native.
pub fn has_atomics(from: usize, to: usize) -> Result<bool> {
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

/// The share of a period in which the device was busy, in percent.
pub(crate) fn share(busy_ns: u64, of: Duration) -> u32 {
    let of = of.as_nanos().max(1);
    (u128::from(busy_ns) * 100 / of).min(100) as u32
}

/// The share of time in which a device did work of the VM, in percent. It covers the time since the last call, if that
/// was at most two seconds ago. Otherwise the call takes a tenth of a second to measure it.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_forked_child_works_while_another_thread_asks_the_host() {
        watch_forks();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    with_state(|_| std::thread::yield_now());
                }
            });
            let mut ended = Vec::new();
            for _ in 0..50 {
                // SAFETY: the child only locks, unlocks and ends; it is killed if it waits for ever.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(10);
                        with_state(|_| ());
                        libc::_exit(0);
                    }
                    let mut status = -1;
                    libc::waitpid(child, &mut status, 0);
                    ended.push(status);
                }
                if ended.last() != Some(&0) {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(|status| *status == 0), "{ended:?}");
        });
    }
}
