"""The CloudFormation stack that `boa up` makes."""
