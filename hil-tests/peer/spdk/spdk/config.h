/* SPDK's `configure` would write this file. None of its options is used here. */
