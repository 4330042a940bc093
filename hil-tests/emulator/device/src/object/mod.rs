//! The objects of the device, such as mkeys and queue pairs, in tables by number.

pub(crate) mod cq;
pub(crate) mod dek;
pub(crate) mod mkey;
pub(crate) mod outstanding;
pub(crate) mod posted;
pub(crate) mod psv;
pub(crate) mod qp;
pub(crate) mod read_ahead;
pub(crate) mod srq;

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Object numbers have 24 bits.
const MAX_NUMBER: u32 = 0x00ff_ffff;

/// Objects of one kind by number.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// The numbers in rising order. `objects` has the object of each number at the same place. Two vectors
    /// replace a `BTreeMap`, whose code would be compiled anew for each kind of object, in each crate that
    /// names the type of a device's memory. The objects are boxed, so that a removal moves few bytes.
    numbers: Vec<u32>,
    objects: Vec<Box<T>>,
    first: u32,
    last: u32,
    next: u32,
    /// Whether the number of a removed object is reused at once.
    reuses: bool,
}

impl<T> Table<T> {
    /// Makes an empty table whose first object gets the number `first`.
    pub(crate) const fn new(first: u32) -> Self {
        Self { numbers: Vec::new(), objects: Vec::new(), first, last: MAX_NUMBER, next: first, reuses: false }
    }

    /// Assigns numbers from `first` to `last` from now on.
    pub(crate) const fn set_range(&mut self, first: u32, last: u32) {
        (self.first, self.last, self.next) = (first, last, first);
    }

    /// Returns whether a number is in the range of this table.
    pub(crate) const fn covers(&self, number: u32) -> bool {
        self.first <= number && number <= self.last
    }

    /// Returns how many numbers of the range are free.
    pub(crate) fn free(&self) -> u32 {
        let below = self.numbers.partition_point(|number| *number < self.first);
        let taken = self.numbers.partition_point(|number| *number <= self.last) - below;
        (self.last - self.first + 1).saturating_sub(taken as u32)
    }

    /// Reuses the numbers of removed objects at once from now on.
    pub(crate) const fn reuse(&mut self) {
        self.reuses = true;
    }

    /// Stores an object under a new number, and returns the number. `None` if the numbers are used up.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        // Without `reuses`, the search begins after the number that was assigned last, so that a number is
        // reused as late as possible.
        if self.reuses {
            self.next = self.first;
        }
        let free = |number: &u32| self.numbers.binary_search(number).is_err();
        let number = (self.next..=self.last).find(free).or_else(|| (self.first..self.next).find(free))?;
        self.next = if number >= self.last { self.first } else { number.wrapping_add(1) };
        self.insert_at(number, object)
    }

    /// Stores an object under this number, and returns the number. Returns `None` if the number is in use.
    pub(crate) fn insert_at(&mut self, number: u32, object: T) -> Option<u32> {
        let place = self.numbers.binary_search(&number).err()?;
        self.numbers.insert(place, number);
        self.objects.insert(place, Box::new(object));
        Some(number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let place = self.numbers.binary_search(&number).ok()?;
        self.objects.get(place).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.numbers.binary_search(&number).ok()?;
        self.objects.get_mut(place).map(Box::as_mut)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.numbers.binary_search(&number).ok()?;
        self.numbers.remove(place);
        Some(*self.objects.remove(place))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.iter().map(Box::as_ref)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.numbers.clone()
    }
}

/// A protection domain. Its number is its only property.
#[derive(Debug)]
pub(crate) struct Pd;

/// All objects of a device.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) pds: Table<Pd>,
    pub(crate) mkeys: Table<mkey::Mkey>,
    pub(crate) psvs: Table<psv::Psv>,
    pub(crate) deks: Table<dek::Dek>,
    pub(crate) keks: Table<dek::Secret>,
    pub(crate) credentials: Table<dek::Secret>,
    pub(crate) logins: Table<dek::Login>,
    pub(crate) cqs: Table<cq::Cq>,
    pub(crate) srqs: Table<srq::Srq>,
    pub(crate) qps: Table<qp::Qp>,
}

impl Objects {
    pub(crate) const fn new() -> Self {
        Self {
            pds: Table::new(1),
            // The first index leaves out the keys 0x100 and 0x400 (indexes 1 and 4 with tag 0): they mean
            // "end of list" and "header of an interleaved layout".
            mkeys: Table::new(0x10),
            psvs: Table::new(1),
            deks: Table::new(1),
            keks: Table::new(1),
            credentials: Table::new(1),
            logins: Table::new(1),
            cqs: Table::new(1),
            srqs: Table::new(1),
            qps: Table::new(0x40),
        }
    }
}
