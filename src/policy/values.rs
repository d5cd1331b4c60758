// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The values of a policy in a file, and as flags.

use std::{fmt, marker::PhantomData, str::FromStr, time::Duration};

use bytesize::ByteSize;
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use super::{DEFAULT_OVERRUN_LIMIT, DEFAULT_PAUSE_LIMIT, DEFAULT_WEIGHT, MAX_WEIGHT};
use crate::account::{CLIENTS, GPUS};

/// The text for no limit.
const UNLIMITED: &str = "unlimited";
/// The text for all GPUs.
const ALL: &str = "all";

/// A list of GPUs; `None` for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus(pub Option<Vec<u32>>);

/// Bytes of device memory; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory(pub Option<u64>);

/// A weight, relative to the other VMs' weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight(pub u32);

/// The maximum number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxClients(pub usize);

/// The maximum run time of one kernel; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LongestKernel(pub Option<Duration>);

/// The maximum time for which a process's work may stay on the GPU after its turn; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverrunLimit(pub Option<Duration>);

/// The maximum time for which the VM's pause waits for a process's work on the GPU; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PauseLimit(pub Option<Duration>);

impl Default for Weight {
    fn default() -> Self {
        Self(DEFAULT_WEIGHT)
    }
}

impl Default for OverrunLimit {
    fn default() -> Self {
        Self(Some(DEFAULT_OVERRUN_LIMIT))
    }
}

impl Default for PauseLimit {
    fn default() -> Self {
        Self(Some(DEFAULT_PAUSE_LIMIT))
    }
}

impl Default for MaxClients {
    fn default() -> Self {
        Self(CLIENTS)
    }
}

/// A value that a file can contain as text, as a number or as a list of numbers.
trait Value: Sized + FromStr<Err = String> {
    const EXPECTED: &'static str;

    fn of_number(number: u64) -> Result<Self, String>;

    fn of_list(_: Vec<u64>) -> Result<Self, String> {
        Err(format!("expected {}, not a list", Self::EXPECTED))
    }
}

impl Value for Gpus {
    const EXPECTED: &'static str = "a list of GPU numbers such as [0, 1], or \"all\"";

    fn of_number(number: u64) -> Result<Self, String> {
        Self::of_list(vec![number])
    }

    fn of_list(list: Vec<u64>) -> Result<Self, String> {
        let mut gpus = Vec::new();
        for number in list {
            let gpu = u32::try_from(number).ok();
            let gpu = gpu.filter(|gpu| (*gpu as usize) < GPUS);
            let gpu = gpu.ok_or_else(|| format!("{number} is not a GPU number"))?;
            if gpus.contains(&gpu) {
                return Err(format!("GPU {gpu} is listed twice"));
            }
            gpus.push(gpu);
        }
        if gpus.is_empty() {
            return Err(format!("empty list of GPUs; expected {}", Self::EXPECTED));
        }
        Ok(Self(Some(gpus)))
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == ALL {
            return Ok(Self(None));
        }
        let number = |part: &str| part.trim().parse::<u64>();
        let list: Result<_, _> = text.split(',').map(number).collect();
        let list =
            list.map_err(|_| format!("{text:?} is not a list of GPUs such as 0,1 or {ALL}"))?;
        Self::of_list(list)
    }
}

impl Value for Memory {
    const EXPECTED: &'static str = "a size such as \"8GiB\", or \"unlimited\"";

    fn of_number(bytes: u64) -> Result<Self, String> {
        // In the ledger 0 means no limit, and a VM without memory could not use a GPU.
        match bytes {
            0 => Err("a VM needs device memory: the minimum is 1 byte".to_owned()),
            bytes => Ok(Self(Some(bytes))),
        }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == UNLIMITED {
            return Ok(Self(None));
        }
        let size = ByteSize::from_str(text.trim());
        let size = size
            .map_err(|_| format!("{text:?} is not a size such as 8GiB, 512 MiB or {UNLIMITED}"))?;
        Self::of_number(size.as_u64())
    }
}

impl Value for Weight {
    const EXPECTED: &'static str = "a number such as 100";

    fn of_number(number: u64) -> Result<Self, String> {
        let weight = u32::try_from(number).ok();
        let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
        let weight = weight.ok_or_else(|| format!("a weight must be 1 to {MAX_WEIGHT}"))?;
        Ok(Self(weight))
    }
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of_number(
            text.parse()
                .map_err(|_| format!("{text:?} is not a number"))?,
        )
    }
}

impl Value for MaxClients {
    const EXPECTED: &'static str = "a number such as 64";

    fn of_number(number: u64) -> Result<Self, String> {
        let most = usize::try_from(number).ok();
        let most = most.filter(|most| (1..=CLIENTS).contains(most));
        let most = most.ok_or_else(|| format!("max-clients must be 1 to {CLIENTS}"))?;
        Ok(Self(most))
    }
}

impl FromStr for MaxClients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of_number(
            text.parse()
                .map_err(|_| format!("{text:?} is not a number"))?,
        )
    }
}

impl Value for LongestKernel {
    const EXPECTED: &'static str = "a time such as \"10s\", or \"unlimited\"";

    fn of_number(_: u64) -> Result<Self, String> {
        Err(format!("a time needs a unit: {}", Self::EXPECTED))
    }
}

/// A time of at least `least`, or `None` for no limit.
fn limit(text: &str, least: Duration) -> Result<Option<Duration>, String> {
    if text == UNLIMITED {
        return Ok(None);
    }
    let time = humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is not a time such as 10s, 500ms or {UNLIMITED}"))?;
    if time < least {
        return Err(format!("the minimum time is {least:?}"));
    }
    Ok(Some(time))
}

impl FromStr for LongestKernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A running kernel cannot be detected in less time.
        limit(text, Duration::from_millis(1)).map(Self)
    }
}

impl Value for OverrunLimit {
    const EXPECTED: &'static str = "a time such as \"10s\", or \"unlimited\"";

    fn of_number(number: u64) -> Result<Self, String> {
        LongestKernel::of_number(number).map(|LongestKernel(limit)| Self(limit))
    }
}

impl FromStr for OverrunLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The wait for the end of a turn takes longer.
        limit(text, Duration::from_millis(100)).map(Self)
    }
}

impl Value for PauseLimit {
    const EXPECTED: &'static str = "a time such as \"10s\", or \"unlimited\"";

    fn of_number(number: u64) -> Result<Self, String> {
        LongestKernel::of_number(number).map(|LongestKernel(limit)| Self(limit))
    }
}

impl FromStr for PauseLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A process takes longer to notice the pause.
        limit(text, Duration::from_millis(100)).map(Self)
    }
}

struct AnyForm<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for AnyForm<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::of_number(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number)
            .map_err(|_| E::custom(format!("{number} is not {}", T::EXPECTED)))?;
        self.visit_u64(number)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element::<u64>()? {
            numbers.push(number);
        }
        T::of_list(numbers).map_err(de::Error::custom)
    }
}

macro_rules! deserialize {
    ($($ty:ty),*) => {$(
        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(AnyForm(PhantomData))
            }
        }
    )*};
}

deserialize!(
    Gpus,
    Memory,
    Weight,
    MaxClients,
    LongestKernel,
    OverrunLimit,
    PauseLimit
);

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(gpus) = &self.0 else {
            return f.write_str(ALL);
        };
        let gpus: Vec<_> = gpus.iter().map(u32::to_string).collect();
        f.write_str(&gpus.join(","))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{}", ByteSize(bytes).display().iec()),
            None => f.write_str(UNLIMITED),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MaxClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LongestKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => humantime::format_duration(time).fmt(f),
            None => f.write_str(UNLIMITED),
        }
    }
}

impl fmt::Display for OverrunLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LongestKernel(self.0).fmt(f)
    }
}

impl fmt::Display for PauseLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LongestKernel(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_as_people_write_them() {
        let bytes = |text: &str| text.parse::<Memory>().map(|memory| memory.0);
        assert_eq!(bytes("8GiB"), Ok(Some(8 << 30)));
        assert_eq!(bytes("512 MiB"), Ok(Some(512 << 20)));
        assert_eq!(bytes("1.5GiB"), Ok(Some(3 << 29)));
        assert_eq!(bytes("8GB"), Ok(Some(8_000_000_000)));
        assert_eq!(bytes("4096"), Ok(Some(4096)));
        assert_eq!(bytes("unlimited"), Ok(None));
        for wrong in ["", "0", "0GiB", "-1GiB", "GiB", "8 elephants", "lots"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let time = |text: &str| text.parse::<LongestKernel>().map(|longest| longest.0);
        assert_eq!(time("10s"), Ok(Some(Duration::from_secs(10))));
        assert_eq!(time("500ms"), Ok(Some(Duration::from_millis(500))));
        assert_eq!(time("1m 30s"), Ok(Some(Duration::from_secs(90))));
        assert_eq!(time("unlimited"), Ok(None));
        for wrong in ["", "0s", "999us", "10", "-1s", "soon"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gpus_weights_and_counts_are_what_can_be() {
        let gpus = |text: &str| text.parse::<Gpus>().map(|gpus| gpus.0);
        assert_eq!(gpus("1, 0"), Ok(Some(vec![1, 0])));
        assert_eq!(gpus("all"), Ok(None));
        for wrong in ["", "0,", "0,0", "-1", "64", "first"] {
            assert!(gpus(wrong).is_err(), "{wrong}");
        }
        assert_eq!("10000".parse(), Ok(Weight(10_000)));
        assert_eq!("1024".parse(), Ok(MaxClients(1024)));
        for wrong in ["0", "10001", "-1", "1.5", "x"] {
            assert!(wrong.parse::<Weight>().is_err(), "{wrong}");
        }
        for wrong in ["0", "1025", "x"] {
            assert!(wrong.parse::<MaxClients>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_values_parse() {
        for text in ["all", "0,3"] {
            assert_eq!(text.parse::<Gpus>().unwrap().to_string(), text);
        }
        for text in ["unlimited", "8.0 GiB"] {
            assert_eq!(text.parse::<Memory>().unwrap().to_string(), text);
        }
        for text in ["unlimited", "1m 30s", "250ms"] {
            assert_eq!(text.parse::<LongestKernel>().unwrap().to_string(), text);
        }
    }
}
