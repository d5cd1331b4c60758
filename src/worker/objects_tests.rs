// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects that look-ups find, and hidden ones.

use gpgpu_protocol::api::object_id;

use super::*;

#[test]
fn pitfall_63_stale_foreign_and_garbage_handles_find_nothing() {
    let objects = Objects::default();
    let id = object_id::<Stream>(1);
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    objects.check_new::<Stream>(id).unwrap();
    objects.insert(id, Entry::new(0x1234, 0));
    assert_eq!(objects.raw::<Stream>(id), Ok(0x1234));
    assert_eq!(objects.raw::<Event>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert!(objects.check_new::<Stream>(id).is_err());
    assert!(objects.check_new::<Event>(object_id::<Stream>(2)).is_err());
    let reserved = object_id::<Stream>(1 << 48);
    assert!(objects.check_new::<Stream>(reserved).is_err());
    assert_eq!(objects.end::<Stream>(id).unwrap().raw, 0x1234);
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert!(objects.end::<Stream>(id).is_err(), "it ends once");
    assert!(objects.check_new::<Stream>(id).is_err());
    objects.remove(id);
    objects.check_new::<Stream>(id).unwrap();
    assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
    assert_eq!(
        objects.raw::<Stream>(0xdead_beef),
        Err(CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(objects.raw::<Stream>(0), Ok(0));
}

#[test]
fn a_context_takes_what_is_in_it_along() {
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
    // Objects in it that an earlier command still finds end as well.
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
    // A stream that ended by itself stays so.
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
            objects.check_new_of(*class, class.id(serial)).unwrap();
            objects.insert(class.id(serial), Entry::new(1, 0));
        }
        let next = objects.check_new_of(*class, class.id(most));
        assert_eq!(next, Err(CUDA_ERROR_OUT_OF_MEMORY));
        objects.end_of(*class, class.id(0)).unwrap();
        objects.remove(class.id(0));
        objects.check_new_of(*class, class.id(most)).unwrap();
    }
}

#[test]
fn pitfall_73_objects_of_a_kind_are_bounded_and_make_room_as_they_end() {
    let objects = Objects::default();
    let id = object_id::<Context>;
    for serial in 0..most(Context::KIND) as u64 {
        objects.check_new::<Context>(id(serial)).unwrap();
        objects.insert(id(serial), Entry::new(1, 0));
        // Its objects end with it.
        objects.insert(object_id::<Stream>(serial), Entry::new(1, id(serial)));
    }
    let next = id(1 << 20);
    assert_eq!(
        objects.check_new::<Context>(next),
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    );
    objects.check_new::<Event>(object_id::<Event>(0)).unwrap();
    objects.end::<Context>(id(0)).unwrap();
    assert_eq!(
        objects.check_new::<Context>(next),
        Err(CUDA_ERROR_OUT_OF_MEMORY),
        "the driver has it still"
    );
    objects.remove(id(0));
    objects.check_new::<Context>(next).unwrap();
    for serial in 1..most(Context::KIND) as u64 {
        objects.remove_context(id(serial));
    }
    assert_eq!(objects.write(|table| *table.count(id(0))), 0);
    assert_eq!(
        objects.write(|table| *table.count(object_id::<Stream>(0))),
        1
    );
}
