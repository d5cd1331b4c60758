// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The limits of launches, and the forms that the host has accepted.

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{api::LaunchConfig, cuda::*};

use super::occupancy::configuration;

/// The maximum values of a launch in a context.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
}

impl Limits {
    /// The limits of a device with these attributes; 0, which no launch respects, if the host did not report one.
    pub fn of(attribute: impl Fn(CUdevice_attribute) -> Option<i32>) -> Self {
        let limits = |attributes: [CUdevice_attribute; 3]| {
            attributes.map(|which| attribute(which).map_or(0, |limit| limit as u32))
        };
        Self {
            grid: limits([
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ]),
            block: limits([
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ]),
        }
    }

    /// Whether a launch respects them.
    #[inline]
    pub fn hold(&self, config: &LaunchConfig) -> bool {
        let within = |extents: [u32; 3], limits: [u32; 3]| {
            extents
                .iter()
                .zip(limits)
                .all(|(extent, limit)| *extent != 0 && *extent <= limit)
        };
        within([config.grid_x, config.grid_y, config.grid_z], self.grid)
            && within([config.block_x, config.block_y, config.block_z], self.block)
    }
}

/// The maximum number of launch configurations with attributes that a function remembers.
const MOST_ACCEPTED: usize = 16;

/// Launch configurations with attributes that the host has accepted for a function. They do not depend on the stream.
#[derive(Debug, Default)]
pub struct Accepted {
    known: Mutex<(u64, Vec<(CUdevice, LaunchConfig)>)>,
}

impl Accepted {
    fn known(&self) -> MutexGuard<'_, (u64, Vec<(CUdevice, LaunchConfig)>)> {
        self.known.lock()
    }

    /// Whether the host has accepted such a launch, and would accept it again.
    pub fn holds(&self, device: CUdevice, config: &LaunchConfig) -> bool {
        let known = self.known();
        known.0 == configuration()
            && known
                .1
                .iter()
                .any(|(of, taken)| *of == device && same_shape(taken, config))
    }

    /// Records a launch that the host has accepted in the configuration `before`.
    pub fn note(&self, device: CUdevice, config: &LaunchConfig, before: u64) {
        let mut known = self.known();
        if before != configuration() {
            return;
        }
        if known.0 != before || known.1.len() >= MOST_ACCEPTED {
            known.1.clear();
            known.0 = before;
        }
        known.1.push((device, config.clone()));
    }
}

fn same_shape(one: &LaunchConfig, other: &LaunchConfig) -> bool {
    let shape = |config: &LaunchConfig| {
        (
            [config.grid_x, config.grid_y, config.grid_z],
            [config.block_x, config.block_y, config.block_z],
            config.shared_bytes,
        )
    };
    shape(one) == shape(other) && one.attributes == other.attributes
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::LaunchAttribute;

    use super::{super::occupancy::reconfigure, *};

    fn config(
        (grid_x, grid_y, grid_z): (u32, u32, u32),
        (block_x, block_y, block_z): (u32, u32, u32),
    ) -> LaunchConfig {
        LaunchConfig {
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes: 128,
            stream: 0,
            attributes: Vec::new(),
        }
    }

    fn cooperative() -> LaunchConfig {
        LaunchConfig {
            attributes: vec![LaunchAttribute {
                id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                value: [1; 64],
            }],
            ..config((3, 2, 1), (64, 1, 1))
        }
    }

    #[test]
    fn pitfall_47_only_the_shape_that_the_host_took_is_taken_again() {
        let accepted = Accepted::default();
        let taken = cooperative();
        // Other tests may change a setting in the meantime, which clears the accepted forms.
        let before = loop {
            let before = configuration();
            accepted.note(0, &taken, before);
            if accepted.holds(0, &taken) {
                break before;
            }
        };
        let other_stream = LaunchConfig {
            stream: 0x160,
            ..taken.clone()
        };
        let larger = LaunchConfig {
            grid_x: 4,
            ..taken.clone()
        };
        assert!(before != configuration() || accepted.holds(0, &other_stream));
        assert!(!accepted.holds(0, &larger));
        assert!(!accepted.holds(0, &config((3, 2, 1), (64, 1, 1))));
        assert!(!accepted.holds(1, &taken));
        reconfigure(|| ());
        assert!(!accepted.holds(0, &taken));
    }

    #[test]
    fn pitfall_28_a_launch_past_a_limit_is_for_the_host_to_judge() {
        let limits = Limits {
            grid: [65535, 65535, 65535],
            block: [1024, 1024, 64],
        };
        assert!(limits.hold(&config((3, 2, 1), (64, 1, 1))));
        for wrong in [
            config((0, 1, 1), (1, 1, 1)),
            config((65536, 1, 1), (1, 1, 1)),
            config((1, 1, 1), (1, 1, 65)),
            config((1, 1, 1), (1, 0, 1)),
        ] {
            assert!(!limits.hold(&wrong), "{wrong:?}");
        }
        assert!(!Limits::default().hold(&config((3, 2, 1), (64, 1, 1))));
    }
}
