// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of pitches and other calculations that need no driver.

use super::*;

#[test]
fn pitches_and_their_errors_are_the_drivers() {
    assert_eq!(pitched(1, 3, 4), Ok((512, 1536)));
    assert_eq!(pitched(512, 1, 16), Ok((512, 512)));
    assert_eq!(pitched(513, 2, 8), Ok((1024, 2048)));
    for (width, height, element) in [
        (0, 4, 4),
        (16, 0, 4),
        (16, 4, 3),
        (16, 4, 32),
        (1 << 40, 1 << 40, 4),
        (usize::MAX, 1, 4),
    ] {
        assert_eq!(
            pitched(width, height, element),
            Err(CUDA_ERROR_INVALID_VALUE),
            "{width}×{height}"
        );
    }
    assert_eq!(
        pitched(usize::MAX - 600, 3, 4),
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    );
}
