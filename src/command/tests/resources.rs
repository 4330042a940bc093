//! Tests of the commands for PSVs, protection domains and UAR pages.

use super::*;

#[test]
fn m57_psvs() {
    words(&CreatePsv::<2>::new(pd()), &[(0, 0x0600_0000), (8, 0x20ab_cdef)]);
    fields(&CreatePsv::<4>::new(pd()), &[(0, 16, 0x600), (0x40, 4, 4), (0x48, 24, 0xab_cdef)]);
    let reply = from_words(32, &[(0x10, 0x01_0203), (0x14, 0x04_0506), (0x18, 0x07_0809), (0x1c, 0x0a_0b0c)]);
    let psvs = CreatePsv::<4>::new(pd()).decode(&reply).unwrap();
    assert_eq!(psvs.map(PsvIndex::get), [0x01_0203, 0x04_0506, 0x07_0809, 0x0a_0b0c]);
    assert_eq!(CreatePsv::<1>::new(pd()).decode(&reply).unwrap(), [PsvIndex::new(0x01_0203).unwrap()]);
    words(&DestroyPsv(PsvIndex::new(0x12_3456).unwrap()), &[(0, 0x0601_0000), (8, 0x12_3456)]);
}

#[test]
fn protection_domains_and_uars() {
    words(&AllocPd, &[(0, 0x0800_0000)]);
    words(&AllocUar, &[(0, 0x0802_0000)]);
    let reply = from_words(16, &[(8, 0xffab_cdef)]);
    assert_eq!(AllocPd.decode(&reply).unwrap(), pd());
    assert_eq!(AllocUar.decode(&reply).unwrap().get(), 0xab_cdef);
    words(&DeallocPd(pd()), &[(0, 0x0801_0000), (8, 0xab_cdef)]);
    words(&DeallocUar(UarPage::new(5).unwrap()), &[(0, 0x0803_0000), (8, 5)]);
}
