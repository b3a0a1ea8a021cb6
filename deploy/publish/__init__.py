"""`pkgrepo publish`: sends installer files and creates versions, through the public interface only."""
