"""Which files of a working folder a user said yes to: a clone must not decide what is started, nor by which rules."""
