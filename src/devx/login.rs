//! Crypto logins. While a login is valid, the device accepts wrapped data encryption keys from the program.

use super::{Device, DevxError, carry, sys};
use crate::command::{
    CreateLogin, Credential, CredentialId, ImportKekId, LoginObject, LoginState, QueryLogin,
};

/// A crypto login. Dropping the value ends the login. Keys that were loaded under it stay valid.
pub struct Login {
    object: sys::Object<sys::LoginPlace>,
    login: LoginObject,
}

impl Login {
    /// Ends the login.
    ///
    /// # Errors
    /// [`DevxError::Call`], with the login, which still exists.
    pub fn log_out(self) -> Result<(), (DevxError, Self)> {
        let Self { object, login } = self;
        object.destroy().map_err(|(error, object)| (error, Self { object, login }))
    }

    /// Asks the device whether the login is still valid.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn state(&self) -> Result<LoginState, DevxError> {
        let ((), state) = carry(&QueryLogin(self.login), |request, reply| self.object.query(request, reply))?;
        Ok(state)
    }
}

impl Device {
    /// Begins a crypto login (`mlx5dv_crypto_login_create`). While it is valid, the program can load wrapped
    /// keys. A context has one login at a time: the next login is possible after this one is dropped. Threads
    /// share the login. Keys that were loaded under the login stay valid after it.
    ///
    /// # Errors
    /// [`DevxError::LoggedIn`] while the context has a login; [`DevxError::Command`] where the device does
    /// not support logins, or refuses.
    pub fn login(
        &self,
        credential_id: CredentialId,
        import_kek_id: ImportKekId,
        credential: Credential<'_>,
    ) -> Result<Login, DevxError> {
        let command = CreateLogin { credential_id, import_kek_id, credential };
        command.check(&self.report)?;
        let place = self.context.login_place().ok_or(DevxError::LoggedIn)?;
        let (object, login) =
            carry(&command, |request, reply| sys::Object::create(&self.context, place, request, reply))?;
        Ok(Login { object, login })
    }
}
