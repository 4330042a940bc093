use super::*;

#[test]
fn records_are_big_endian() {
    let record = DoorbellRecord::new();
    record.set_receive(0x0304);
    record.set_send(0xabcd);
    assert_eq!(record.bytes(), [[0, 0, 3, 4], [0, 0, 0xab, 0xcd]]);
    let record = CqDoorbellRecord::new();
    record.set_consumer(0x0001_0203);
    record.set_arm(0x1004_0506);
    assert_eq!(record.bytes(), [[0, 1, 2, 3], [0x10, 4, 5, 6]]);
}
