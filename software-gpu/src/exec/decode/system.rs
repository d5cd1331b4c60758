// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Special registers.

use super::super::program::Special;

/// The special register of this name, if its value does not change while a block runs.
pub(super) fn special(name: &str) -> Option<Special> {
    if let Some((base, axis)) = name.split_once('.') {
        let k = match axis {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return Some(Special::Zero).filter(|_| axis == "w"),
        };
        return Some(match base {
            "%tid" => Special::Tid(k),
            "%ntid" => Special::Ntid(k),
            "%ctaid" => Special::Ctaid(k),
            "%nctaid" => Special::Nctaid(k),
            "%clusterid" => Special::ClusterId(k),
            "%nclusterid" => Special::NClusterId(k),
            "%cluster_ctaid" => Special::ClusterCtaid(k),
            "%cluster_nctaid" => Special::ClusterNctaid(k),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::LaneId,
        "%warpid" => Special::WarpId,
        "%nwarpid" => Special::NWarpId,
        "%smid" => Special::SmId,
        "%nsmid" => Special::NSmId,
        "%gridid" => Special::GridId,
        "%lanemask_eq" => Special::LaneMask(0),
        "%lanemask_lt" => Special::LaneMask(1),
        "%lanemask_le" => Special::LaneMask(2),
        "%lanemask_gt" => Special::LaneMask(3),
        "%lanemask_ge" => Special::LaneMask(4),
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        "%aggr_smem_size" => Special::AggrShared,
        "%cluster_ctarank" => Special::ClusterCtaRank,
        "%cluster_nctarank" => Special::ClusterNctaRank,
        "%is_explicit_cluster" => Special::IsExplicitCluster,
        "%reserved_smem_offset_0"
        | "%reserved_smem_offset_1"
        | "%reserved_smem_offset_begin"
        | "%reserved_smem_offset_end"
        | "%reserved_smem_offset_cap" => Special::Zero,
        _ => {
            let n: u8 = name.strip_prefix("%envreg")?.parse().ok()?;
            if n > 31 {
                return None;
            }
            Special::EnvReg(n)
        }
    })
}
