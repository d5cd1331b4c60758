// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stream capture.

use super::*;

#[test]
fn pitfall_37_a_captured_stream_records_and_another_works() {
    let _alone = alone();
    assert_eq!(record(1), Ok(false));
    begin(1, GLOBAL);
    assert_eq!(
        (record(1), record(2), record(0)),
        (Ok(true), Ok(false), Ok(false))
    );
    assert_eq!(record(1), Ok(true));
    let graph = capture::end::<Fake>(&stream(1)).unwrap();
    let (steps, _) = with(|inner| flatten(inner, graph)).unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[1].after.as_slice(), [0]);
    assert!(!capture::any::<Fake>() && !capture::any_event::<Fake>());
    with(|inner| inner.forget_graph(graph));
    assert!(with(
        |inner| inner.graphs.is_empty() && inner.nodes.is_empty()
    ));
}

#[test]
fn pitfall_36_a_forbidden_call_ends_the_capture_and_frees_the_stream() {
    let _alone = alone();
    begin(1, GLOBAL);
    assert_eq!(
        capture::guard::<Fake>(),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    assert_eq!(record(1), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert_eq!(
        capture::end::<Fake>(&stream(1)),
        Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    // A relaxed thread has no restrictions, and a relaxed capture restricts no other thread.
    begin(1, GLOBAL);
    assert_eq!(capture::exchange_mode(RELAXED), GLOBAL);
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    assert_eq!(capture::exchange_mode(GLOBAL), RELAXED);
    let graph = capture::end::<Fake>(&stream(1)).unwrap();
    with(|inner| inner.forget_graph(graph));
    begin(3, RELAXED);
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    assert_eq!(record(0), Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    assert!(capture::end::<Fake>(&stream(3)).is_err());
    assert!(!capture::any::<Fake>());
}

#[test]
fn pitfall_38_streams_join_by_events_and_have_to_join_again() {
    let _alone = alone();
    for joins in [true, false] {
        begin(1, GLOBAL);
        record(1).unwrap();
        assert_eq!(
            capture::record_event::<Fake>(5, &stream(1), false),
            Ok(true)
        );
        assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
        assert_eq!(record(2), Ok(true));
        if joins {
            assert_eq!(
                capture::record_event::<Fake>(6, &stream(2), false),
                Ok(true)
            );
            assert_eq!(capture::wait_event::<Fake>(&stream(1), 6, false), Ok(true));
        }
        match capture::end::<Fake>(&stream(1)) {
            Ok(graph) => {
                assert!(joins);
                with(|inner| inner.forget_graph(graph));
            }
            Err(code) => assert_eq!((code, joins), (CUDA_ERROR_STREAM_CAPTURE_UNJOINED, false)),
        }
        // Neither stream is captured any more; the event is unusable until it is recorded again.
        assert_eq!((record(1), record(2)), (Ok(false), Ok(false)));
        assert_eq!(capture::use_event::<Fake>(5), Err(CUDA_ERROR_INVALID_VALUE));
        for event in [5, 6] {
            assert_eq!(
                capture::record_event::<Fake>(event, &stream(2), false),
                Ok(false)
            );
            assert_eq!(capture::use_event::<Fake>(event), Ok(()));
        }
        assert!(!capture::any_event::<Fake>());
    }
}

#[test]
fn pitfall_38_a_stream_that_ends_leaves_its_work_in_the_capture() {
    let _alone = alone();
    let fork = || {
        assert_eq!(
            capture::record_event::<Fake>(5, &stream(1), false),
            Ok(true)
        );
        assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    };
    // The stream's work is joined, is not joined, or does not exist.
    for (works, joins) in [(true, true), (true, false), (false, false)] {
        begin(1, GLOBAL);
        record(1).unwrap();
        fork();
        if works {
            record(2).unwrap();
        }
        if joins {
            assert_eq!(
                capture::record_event::<Fake>(6, &stream(2), false),
                Ok(true)
            );
            assert_eq!(capture::wait_event::<Fake>(&stream(1), 6, false), Ok(true));
        }
        capture::forget_stream::<Fake>(2);
        assert_eq!((record(2), record(1)), (Ok(false), Ok(true)));
        match capture::end::<Fake>(&stream(1)) {
            Ok(graph) => {
                assert!(joins || !works);
                with(|inner| inner.forget_graph(graph));
            }
            Err(code) => {
                assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
                assert!(works && !joins);
            }
        }
        assert!(!capture::any::<Fake>());
    }
    // A capture ends with the stream in which it began, and with the context.
    begin(1, GLOBAL);
    fork();
    capture::forget_stream::<Fake>(1);
    assert!(!capture::any::<Fake>());
    begin(1, GLOBAL);
    fork();
    capture::forget_context::<Fake>(stream(2).context);
    assert!(!capture::any::<Fake>());
    for event in [5, 6] {
        capture::forget_event::<Fake>(event);
    }
}

#[test]
fn pitfall_38_a_capture_is_a_graph_only_in_its_own_stream_and_thread() {
    let _alone = alone();
    let elsewhere = || {
        std::thread::spawn(|| capture::end::<Fake>(&stream(1)))
            .join()
            .unwrap()
    };
    begin(1, GLOBAL);
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    assert!(!capture::any::<Fake>());
    begin(1, RELAXED);
    let graph = elsewhere().unwrap();
    with(|inner| inner.forget_graph(graph));
    begin(1, GLOBAL);
    assert_eq!(
        capture::record_event::<Fake>(5, &stream(1), false),
        Ok(true)
    );
    assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    assert_eq!(
        capture::end::<Fake>(&stream(2)),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    );
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert!(!capture::any::<Fake>());
    begin(1, GLOBAL);
    assert_eq!(
        capture::record_event::<Fake>(5, &stream(1), false),
        Ok(true)
    );
    assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    assert_eq!(record(2), Ok(true));
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    assert!(!capture::any::<Fake>());
    capture::forget_event::<Fake>(5);
}

#[test]
fn pitfall_36_a_stream_that_ends_leaves_the_capture_that_it_joined() {
    let _alone = alone();
    let (origin, other) = (stream(1), stream(2));
    for is_joined in [true, false] {
        capture::begin::<Fake>(&origin, CU_STREAM_CAPTURE_MODE_RELAXED, None).unwrap();
        let record = |stream: &Stream| {
            capture::record_work::<Fake>(stream, || Ok(Work::Empty)).unwrap();
        };
        record(&origin);
        capture::record_event::<Fake>(5, &origin, false).unwrap();
        let joined = capture::wait_event::<Fake>(&other, 5, false);
        assert_eq!(joined, Ok(true));
        record(&other);
        if is_joined {
            capture::record_event::<Fake>(6, &other, false).unwrap();
            capture::wait_event::<Fake>(&origin, 6, false).unwrap();
        }
        capture::forget_stream::<Fake>(2);
        record(&origin);
        let graph = capture::end::<Fake>(&origin);
        match is_joined {
            true => with(|inner| inner.forget_graph(graph.unwrap())),
            false => assert_eq!(graph, Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)),
        }
        capture::forget_event::<Fake>(5);
        capture::forget_event::<Fake>(6);
    }
}
