// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events that are shared with other processes of the VM.

use super::*;

fn page(common: &'static Common) -> (Page, Arc<File>) {
    let board = Shared::<Board>::new(c"test").unwrap();
    let file = Arc::clone(board.file());
    (Page::new(common, board, true).unwrap(), file)
}

fn set_latest(page: &Page, pair: u64, number: u32) {
    let latest = (pair + 1) << 32 | u64::from(number);
    page.board().latest.store(latest, Ordering::Release);
}

#[test]
fn an_event_that_was_never_recorded_or_is_invalid_is_over() {
    let common: &'static Common = Box::leak(Box::default());
    let (page, _) = page(common);
    assert_eq!(page.latest(), None);
    set_latest(&page, 0, 0);
    assert_eq!(page.latest(), None);
    for pair in [(PAIRS * SLOTS) as u64, u64::from(u32::MAX) - 1] {
        set_latest(&page, pair, 7);
        assert_eq!(page.latest(), None, "{pair}");
    }
}

#[test]
fn records_of_an_ended_process_end_and_others_do_not() {
    let common: &'static Common = Box::leak(Box::default());
    let (page, _) = page(common);
    // This process's own record is pending.
    let own = &page.board().pairs[page.slot * PAIRS];
    own.given.store(1, Ordering::Release);
    set_latest(&page, (page.slot * PAIRS) as u64, 1);
    let record = page.latest().unwrap();
    assert!(!page.is_over(record));
    own.done.store(1, Ordering::Release);
    assert!(page.is_over(record) && page.latest().is_none());
    // The next slot has no holder: the worker of this record has ended.
    let other = (page.slot + 1) * PAIRS;
    page.board().pairs[other]
        .given
        .store(u32::MAX, Ordering::Release);
    page.board().pairs[other]
        .done
        .store(u32::MAX - 1, Ordering::Release);
    set_latest(&page, other as u64, u32::MAX);
    let record = page.latest().unwrap();
    assert!(page.is_over(record) && page.latest().is_none());
    assert!(has_come(3, u32::MAX - 2) && !has_come(u32::MAX - 2, 3));
}
