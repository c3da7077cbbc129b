"""AWS as a cloud: one package, whose front door is `cloud` and whose every call goes through `calls`."""
