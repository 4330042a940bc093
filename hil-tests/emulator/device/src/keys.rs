//! Encryption keys: key encryption keys (KEKs), logins, and data encryption keys (DEKs).

use crate::device::{Device, Error};
use crate::faults::Faults;
use crate::memory::Memory;
use crate::object::dek::{Dek, DekAttributes, KeyMaterial, KeySize, Login, LoginState, Secret};
use crate::profile::CryptoMode;
use alloc::boxed::Box;

/// The reason why the attributes of a DEK cannot be read from a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DekError {
    /// The command has too few bytes.
    Length,
    /// The device refuses the attributes.
    Refused(Error),
}

impl<'a> DekAttributes<'a> {
    /// Reads the attributes from a general object in a command (PRM `encryption_key`). `login` is the number
    /// of a valid login of the user, which a device of mode [`CryptoMode::Wrapped`] needs.
    ///
    /// # Errors
    /// [`DekError::Length`]; [`Error::BadAttribute`] for another purpose than AES-XTS, or an unknown size;
    /// [`Error::NoLogin`].
    pub fn read(object: &'a [u8], crypto: CryptoMode, login: Option<u32>) -> Result<Self, DekError> {
        const XTS: u8 = 3;
        const WRAPPING: usize = 8;
        let refused = |error| Err(DekError::Refused(error));
        let (Some([size, flags]), Some([a, b, c])) = (object.get(0xa..0xc), object.get(0xd..0x10)) else {
            return Err(DekError::Length);
        };
        if flags & 0xf != XTS {
            return refused(Error::BadAttribute("purpose of the key"));
        }
        let size = match size & 0xf {
            0 => KeySize::Bits128,
            1 => KeySize::Bits256,
            _ => return refused(Error::BadAttribute("size of the key")),
        };
        let has_keytag = flags & 0x80 != 0;
        let length = size.xts_bytes() + if has_keytag { 8 } else { 0 };
        let bytes = |length| object.get(0x40..0x40 + length).ok_or(DekError::Length);
        let key = match (crypto, login) {
            (CryptoMode::Wrapped, Some(login)) => {
                KeyMaterial::Wrapped { bytes: bytes(length + WRAPPING)?, login }
            }
            (CryptoMode::Wrapped, None) => return refused(Error::NoLogin),
            _ => KeyMaterial::Plaintext(bytes(length)?),
        };
        Ok(Self { pd: u32::from_be_bytes([0, *a, *b, *c]), size, has_keytag, key })
    }
}

impl<M: Memory> Device<M> {
    /// Imports a key encryption key of 16 or 32 bytes and returns its number.
    ///
    /// # Errors
    /// [`Error::CryptoMode`] unless the device takes wrapped keys, [`Error::BadAttribute`] for the length.
    pub fn import_kek(&mut self, key: &[u8]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        if !matches!(key.len(), 16 | 32) {
            return Err(Error::BadAttribute("KEK length"));
        }
        self.objects.keks.insert(Secret(key.to_vec().into())).ok_or(Error::Exhausted)
    }

    /// Stores a credential of 40 bytes, which logins have to present, and returns its number.
    ///
    /// # Errors
    /// [`Error::CryptoMode`] unless the device takes wrapped keys.
    pub fn import_credential(&mut self, credential: &[u8; 40]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        self.objects.credentials.insert(Secret(credential.to_vec().into())).ok_or(Error::Exhausted)
    }

    /// Logs in with a credential of 48 bytes, wrapped with the KEK, and returns the login's number (object
    /// 0x1f).
    ///
    /// A credential that does not match makes a login that is [`LoginState::Invalid`].
    ///
    /// # Errors
    /// [`Error::CryptoMode`] unless the device takes wrapped keys, [`Error::NoSuchObject`] for KEK or
    /// credential.
    pub fn login(&mut self, kek: u32, credential: u32, wrapped: &[u8; 48]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        let key = self.objects.keks.get(kek).ok_or(Error::NoSuchObject { what: "KEK", number: kek })?;
        let known = self.objects.credentials.get(credential);
        let known = known.ok_or(Error::NoSuchObject { what: "credential", number: credential })?;
        let shown = Dek::unwrap(key, wrapped, &Faults::default());
        let state = match shown {
            Some(shown) if shown.0 == known.0 => LoginState::Valid,
            _ => LoginState::Invalid,
        };
        self.objects.logins.insert(Login { kek, credential, state }).ok_or(Error::Exhausted)
    }

    /// Returns the state of a login.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_login(&self, number: u32) -> Result<LoginState, Error> {
        self.objects
            .logins
            .get(number)
            .map(|login| login.state)
            .ok_or(Error::NoSuchObject { what: "login", number })
    }

    /// Ends a login. DEKs that were loaded under this login stay.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn logout(&mut self, number: u32) -> Result<(), Error> {
        self.objects.logins.remove(number).ok_or(Error::NoSuchObject { what: "login", number })?;
        self.login_has_ended(number);
        Ok(())
    }

    /// Invalidates all logins with a credential, as if a crypto officer had deleted the credential and stored
    /// it again. DEKs that were loaded under these logins stay.
    pub fn revoke(&mut self, credential: u32) {
        for number in self.objects.logins.numbers() {
            if let Some(login) = self.objects.logins.get_mut(number)
                && login.credential == credential
            {
                login.state = LoginState::Invalid;
                self.login_has_ended(number);
            }
        }
    }

    fn login_has_ended(&mut self, number: u32) {
        if !self.faults.keys_end_with_their_login {
            return;
        }
        let deks = &mut self.objects.deks;
        for dek in deks.numbers() {
            if deks.get(dek).is_some_and(|dek| dek.login == Some(number)) {
                deks.remove(dek);
            }
        }
    }

    /// Loads a data encryption key and returns its number (object 0x0c).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::CryptoMode`] for the other import method,
    /// [`Error::NoLogin`], [`Error::BadKey`].
    pub fn create_dek(&mut self, attributes: DekAttributes<'_>) -> Result<u32, Error> {
        let dek = self.load(attributes)?;
        self.objects.deks.insert(dek).ok_or(Error::Exhausted)
    }

    /// Gives a DEK another value (MODIFY_GENERAL_OBJECT).
    ///
    /// Assumption: a DEK that was used since the last [`Device::sync_crypto`] keeps its old value until the
    /// next call of [`Device::sync_crypto`].
    ///
    /// # Errors
    /// The errors of [`Device::create_dek`]; [`Error::NoSuchObject`] for the DEK; [`Error::BadAttribute`] for
    /// another domain.
    pub fn modify_dek(&mut self, number: u32, attributes: DekAttributes<'_>) -> Result<(), Error> {
        let new = self.load(attributes)?;
        let dek = self.objects.deks.get_mut(number).ok_or(Error::NoSuchObject { what: "DEK", number })?;
        if dek.pd != new.pd {
            return Err(Error::BadAttribute("domain of a DEK"));
        }
        if self.faults.dek_size_fixed && !dek.cipher.is_as_long_as(&new.cipher) {
            return Err(Error::BadAttribute("size of a DEK"));
        }
        if *dek.used.get_mut() && !self.faults.dek_value_at_once {
            dek.next = Some(Box::new(new))
        } else {
            *dek = new
        }
        Ok(())
    }

    /// Puts the new values of modified DEKs in force (SYNC_CRYPTO).
    pub fn sync_crypto(&mut self) {
        for number in self.objects.deks.numbers() {
            let Some(dek) = self.objects.deks.get_mut(number) else { continue };
            *dek.used.get_mut() = false;
            if let Some(next) = dek.next.take() {
                *dek = *next;
            }
        }
    }

    fn load(&self, attributes: DekAttributes<'_>) -> Result<Dek, Error> {
        self.known_pd(attributes.pd)?;
        let DekAttributes { pd, size, has_keytag, key } = attributes;
        let dek = match key {
            KeyMaterial::Plaintext(bytes) => {
                self.needs(CryptoMode::Plaintext)?;
                Dek::load(pd, size, has_keytag, bytes, &self.faults)
            }
            KeyMaterial::Wrapped { bytes, login } => {
                self.needs(CryptoMode::Wrapped)?;
                let session = self.objects.logins.get(login).ok_or(Error::NoLogin)?;
                let kek = self.objects.keks.get(session.kek);
                let kek = kek.filter(|_| session.state == LoginState::Valid).ok_or(Error::NoLogin)?;
                let plain = Dek::unwrap(kek, bytes, &self.faults).ok_or(Error::BadKey)?;
                Dek::load(pd, size, has_keytag, &plain.0, &self.faults)
                    .map(|dek| Dek { login: Some(login), ..dek })
            }
        };
        dek.ok_or(Error::BadKey)
    }

    /// Destroys a DEK and wipes its key.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_dek(&mut self, number: u32) -> Result<(), Error> {
        self.objects.deks.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "DEK", number })
    }

    fn needs(&self, mode: CryptoMode) -> Result<(), Error> {
        if self.profile.crypto == mode { Ok(()) } else { Err(Error::CryptoMode) }
    }
}
