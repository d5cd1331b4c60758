// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Visible and hidden objects.

use gpgpu_protocol::api::object_id;

use super::*;

#[test]
fn pitfall_63_stale_foreign_and_garbage_handles_find_nothing() {
    let objects = Objects::default();
    let id = object_id::<Stream>(1);
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    drop(objects.begin::<Stream>(id).unwrap());
    objects.insert(id, Entry::new(0x1234, 0));
    assert_eq!(objects.raw::<Stream>(id), Ok(0x1234));
    assert_eq!(objects.raw::<Event>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert!(objects.begin::<Stream>(id).is_err());
    assert!(objects.begin::<Event>(object_id::<Stream>(2)).is_err());
    let reserved = object_id::<Stream>(1 << 48);
    assert!(objects.begin::<Stream>(reserved).is_err());
    assert_eq!(objects.end::<Stream>(id).unwrap().raw, 0x1234);
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert!(objects.end::<Stream>(id).is_err(), "it ends once");
    assert!(objects.begin::<Stream>(id).is_err());
    objects.remove(id);
    drop(objects.begin::<Stream>(id).unwrap());
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert_eq!(
        objects.raw::<Stream>(0xdead_beef),
        Err(CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(objects.raw::<Stream>(0), Ok(0));
}

#[test]
fn pitfall_63_an_id_is_one_objects_from_the_time_when_it_is_made() {
    let objects = Objects::default();
    let id = object_id::<Context>;
    let taken = |id| objects.begin::<Context>(id).err() == Some(CUDA_ERROR_INVALID_VALUE);
    let begun = objects.begin::<Context>(id(1)).unwrap();
    assert!(taken(id(1)) && !taken(id(2)));
    assert!(
        objects.raw::<Context>(id(1)).is_err(),
        "it is not there yet"
    );
    // An end in the meantime does not affect this one.
    objects.remove_context(id(1));
    assert!(taken(id(1)));
    drop(begun);
    let begun = objects
        .begin::<Context>(id(1))
        .expect("the first has failed");
    begun.finish(Entry::new(5, 0));
    assert!(taken(id(1)));
    assert_eq!(objects.raw::<Context>(id(1)), Ok(5));
    // Objects that are being made are counted.
    let most = most(Context::KIND) as u64;
    let all: Vec<_> = (2..=most)
        .map(|serial| objects.begin::<Context>(id(serial)).unwrap())
        .collect();
    let more = objects.begin::<Context>(id(most + 1)).err();
    assert_eq!(more, Some(CUDA_ERROR_OUT_OF_MEMORY));
    drop(all);
    assert!(objects.begin::<Context>(id(most + 1)).is_ok());
}

#[test]
fn a_context_ends_with_the_objects_in_it() {
    let objects = Objects::default();
    objects.insert(object_id::<Stream>(1), Entry::new(1, 7));
    objects.insert(object_id::<Stream>(2), Entry::new(2, 8));
    objects.remove_context(7);
    assert!(objects.raw::<Stream>(object_id::<Stream>(1)).is_err());
    assert!(objects.raw::<Stream>(object_id::<Stream>(2)).is_ok());
}

#[test]
fn objects_of_a_library_are_hidden_when_it_ends() {
    let objects = Objects::default();
    let library = object_id::<Library>(1);
    let (module, other) = (object_id::<Module>(1), object_id::<Module>(2));
    let functions = [1, 2, 3].map(object_id::<Function>);
    let of = |raw, parent| Entry {
        parent,
        ..Entry::new(raw, 0)
    };
    objects.insert(library, Entry::new(1, 0));
    objects.insert(module, of(2, library));
    objects.insert(other, of(3, 0));
    for (function, parent) in functions.into_iter().zip([library, module, other]) {
        objects.insert(function, of(4, parent));
    }
    let found = || functions.map(|id| objects.function(id).is_ok());
    objects.end_with_children::<Library>(library).unwrap();
    // Objects in it that an earlier command still uses end as well.
    let late = object_id::<Function>(4);
    objects.insert(late, of(5, module));
    assert!(objects.function(late).is_err());
    assert_eq!(found(), [false, false, true]);
    objects.keep_with_children(library);
    assert_eq!(found(), [true; 3], "it could not be unloaded");
    objects.end_with_children::<Library>(library).unwrap();
    objects.remove_with_children(library);
    assert_eq!(found(), [false, false, true]);
    assert!(objects.raw::<Module>(module).is_err());
}

#[test]
fn objects_made_in_a_context_that_ends_are_hidden() {
    let objects = Objects::default();
    let context = object_id::<Context>(1);
    let streams = [1, 2].map(object_id::<Stream>);
    objects.insert(context, Entry::new(1, 0));
    objects.insert(streams[0], Entry::new(2, context));
    objects.end_context(context).unwrap();
    objects.insert(streams[1], Entry::new(3, context));
    assert!(objects.raw::<Context>(context).is_err());
    assert!(streams.iter().all(|id| objects.raw::<Stream>(*id).is_err()));
    // A stream that ended by itself stays ended.
    objects.keep_context(context);
    assert!(streams.iter().all(|id| objects.raw::<Stream>(*id).is_ok()));
    objects.end::<Stream>(streams[0]).unwrap();
    objects.end_context(context).unwrap();
    objects.keep_context(context);
    assert!(objects.raw::<Stream>(streams[0]).is_err());
    assert!(objects.raw::<Stream>(streams[1]).is_ok());
}

#[test]
fn pitfall_73_a_client_has_no_more_handles_than_are_good_for_the_host() {
    let objects = Objects::default();
    for class in Class::ALL.iter().filter(|of| of.is_handle()) {
        let most = class.most() as u64;
        for serial in 0..most {
            drop(objects.begin_of(*class, class.id(serial)).unwrap());
            objects.insert(class.id(serial), Entry::new(1, 0));
        }
        let next = objects.begin_of(*class, class.id(most));
        assert_eq!(next.err(), Some(CUDA_ERROR_OUT_OF_MEMORY));
        objects.end_of(*class, class.id(0)).unwrap();
        objects.remove(class.id(0));
        drop(objects.begin_of(*class, class.id(most)).unwrap());
    }
}

#[test]
fn pitfall_73_objects_of_a_kind_are_bounded_and_make_room_as_they_end() {
    let objects = Objects::default();
    let id = object_id::<Context>;
    for serial in 0..most(Context::KIND) as u64 {
        drop(objects.begin::<Context>(id(serial)).unwrap());
        objects.insert(id(serial), Entry::new(1, 0));
        // Its objects end with it.
        objects.insert(object_id::<Stream>(serial), Entry::new(1, id(serial)));
    }
    let next = id(1 << 20);
    let refused = || objects.begin::<Context>(next).err();
    assert_eq!(refused(), Some(CUDA_ERROR_OUT_OF_MEMORY));
    drop(objects.begin::<Event>(object_id::<Event>(0)).unwrap());
    objects.end::<Context>(id(0)).unwrap();
    assert_eq!(
        refused(),
        Some(CUDA_ERROR_OUT_OF_MEMORY),
        "the driver has it still"
    );
    objects.remove(id(0));
    drop(objects.begin::<Context>(next).unwrap());
    for serial in 1..most(Context::KIND) as u64 {
        objects.remove_context(id(serial));
    }
    assert_eq!(objects.write(|table| *table.count(id(0))), 0);
    assert_eq!(
        objects.write(|table| *table.count(object_id::<Stream>(0))),
        1
    );
}

#[test]
fn pitfall_05_a_used_stream_counts_as_used_until_it_is_found_idle() {
    let objects = Objects::default();
    let context = object_id::<Context>(1);
    let streams = [2, 3, 4].map(object_id::<Stream>);
    for (raw, stream) in (1..).zip(streams) {
        objects.insert(stream, Entry::new(raw, context));
        objects.list_stream(stream, context, stream != streams[0]);
    }
    let used = || -> Vec<_> {
        let used = objects.take_used(context).unwrap().into_iter();
        used.map(|of| {
            assert_eq!(of.is_apart, of.id != streams[0]);
            (of.id, of.raw)
        })
        .collect()
    };
    // New ones may have work of another name.
    assert_eq!(used(), [(streams[0], 1), (streams[1], 2), (streams[2], 3)]);
    assert_eq!(used(), []);
    let command = objects.uses();
    objects.raw::<Stream>(streams[1]).unwrap();
    // A command within another one.
    drop(objects.uses());
    assert_eq!(used(), [(streams[1], 2)]);
    objects.stream(streams[2]).unwrap();
    assert_eq!(used(), [(streams[2], 3)]);
    // The command that has looked them up may have submitted its work since.
    drop(command);
    assert_eq!(used(), [(streams[1], 2), (streams[2], 3)]);
    assert_eq!(used(), []);
    // A thread that executes no command remembers nothing.
    objects.raw::<Stream>(streams[1]).unwrap();
    assert_eq!(used(), [(streams[1], 2)]);
    drop(objects.uses());
    assert_eq!(used(), []);
    objects.set_used(streams[0]);
    assert_eq!(objects.take_used(object_id::<Context>(9)), Some(Vec::new()));
    objects.end::<Stream>(streams[0]).unwrap();
    assert_eq!(used(), []);
    objects.set_unfinished(context);
    assert_eq!(objects.take_used(context), None);
    // Another stream is destroyed during the wait.
    let unfinished = objects.unfinished(context);
    objects.set_unfinished(context);
    objects.set_finished(context, unfinished);
    assert_eq!(objects.take_used(context), None);
    objects.set_finished(context, unfinished + 1);
    assert!(objects.take_used(context).is_some());
}
