// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The sensors of a device, by number.
//!
//! A reply contains numbers and values, so a new sensor needs no new operation: a guest ignores unknown numbers.

macro_rules! sensors {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal $unit:literal;)*) => {
        /// A quantity that a device's sensors measure, or a limit that belongs to one. Each value is an unsigned integer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Sensor {
            $($(#[doc = $doc])* $name = $number,)*
        }

        impl Sensor {
            /// All sensors, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The unit of its values; empty if they have none.
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$name => $unit,)*
                }
            }

            /// Its documentation, line by line.
            pub const fn doc(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$($doc),*],)*
                }
            }
        }
    };
}

sensors! {
    /// The temperature of the GPU.
    Temperature = 0 "°C";
    /// The temperature of the device memory.
    MemoryTemperature = 1 "°C";
    /// The temperature of the GPU at which it shuts down.
    ShutdownTemperature = 2 "°C";
    /// The temperature of the GPU at which it slows down to cool.
    SlowdownTemperature = 3 "°C";
    /// The temperature of the device memory at which the GPU slows down.
    MaxMemoryTemperature = 4 "°C";
    /// The highest temperature at which the GPU runs at its full clocks.
    MaxTemperature = 5 "°C";
    /// The power of the board, averaged by the driver over its own interval.
    Power = 6 "mW";
    /// The power of the board at the time of the sample.
    InstantPower = 7 "mW";
    /// The power limit that was set.
    PowerLimit = 8 "mW";
    /// The lowest of all power limits that apply.
    EnforcedPowerLimit = 9 "mW";
    /// The power limit that the board starts with.
    DefaultPowerLimit = 10 "mW";
    /// The lowest power limit that can be set.
    MinPowerLimit = 11 "mW";
    /// The highest power limit that can be set.
    MaxPowerLimit = 12 "mW";
    /// The energy that the board has taken since the driver was loaded.
    Energy = 13 "mJ";
    /// The performance state: 0, the fastest, to 15.
    PerformanceState = 14 "";
    /// The clock of the graphics domain.
    GraphicsClock = 15 "MHz";
    /// The clock of the multiprocessors.
    SmClock = 16 "MHz";
    /// The clock of the device memory.
    MemoryClock = 17 "MHz";
    /// The clock of the video engines.
    VideoClock = 18 "MHz";
    /// The highest clock of the graphics domain.
    MaxGraphicsClock = 19 "MHz";
    /// The highest clock of the multiprocessors.
    MaxSmClock = 20 "MHz";
    /// The highest clock of the device memory.
    MaxMemoryClock = 21 "MHz";
    /// The highest clock of the video engines.
    MaxVideoClock = 22 "MHz";
}

impl Sensor {
    /// The number of sensors. Their numbers are below it.
    pub const COUNT: usize = Self::ALL.len();

    /// Its number in a [`SensorValue`](super::SensorValue).
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_gaps() {
        for (place, sensor) in Sensor::ALL.iter().enumerate() {
            assert_eq!(sensor.number() as usize, place, "{sensor:?}");
        }
    }
}
